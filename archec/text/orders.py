"""What the text pool and its workers agree on: how a worker is started, what it is told, how it answers.

Kept apart from the worker, so that the pool costs a run nothing before there is text to take.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["COMMAND", "READY", "RETIRED", "Orders"]

COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from archec.text.worker import main; main()"
"""For ``python -I -c``: argv 1 the orders, argv 2 the parent's module path."""

READY, RETIRED = 0, -1
"""Answers in place of a file's number: loaded and limited; leaving to give its memory back."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the pool tells a worker at its start."""

    extractor: str
    """``module:function``"""

    max_memory: int
    """Bytes of address space beyond what is mapped once the parsers are loaded."""

    max_size: int
    timeout: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))
