"""Named fail points: where a test lets the process die, as a power cut or ``kill -9`` would.

``ARCHEC_FAILPOINT=name`` kills the process with SIGKILL where ``hit(name)`` runs for the first time,
``name:N`` where it runs for the N-th time. Unset, as in every real run, a fail point does nothing.
The variable is read once per process, at the first fail point.
"""

from __future__ import annotations

import os
import signal
from functools import cache

from archec.errors import UsageError

VARIABLE = "ARCHEC_FAILPOINT"


class _Armed:
    """The fail point that is armed in this process and how many hits it still takes."""

    __slots__ = ("left", "name")

    def __init__(self, name: str, left: int) -> None:
        self.name = name
        self.left = left


@cache
def _plan() -> _Armed | None:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    name, colon, times = text.partition(":")
    if colon and not (times.isascii() and times.isdecimal() and 0 < len(times) < 10 and int(times) > 0):
        raise UsageError(f"{VARIABLE}={text!r}: what follows the colon must be a number, 1 or more")
    return _Armed(name, int(times) if colon else 1)


def armed(name: str) -> bool:
    """Whether the next ``hit(name)`` kills; for a step that has to stop half-way to be interesting."""
    plan = _plan()
    return plan is not None and plan.name == name and plan.left == 1


def hit(name: str) -> None:
    """Dies here, by SIGKILL, if this fail point is armed and its time has come."""
    plan = _plan()
    if plan is None or plan.name != name:
        return
    plan.left -= 1
    if plan.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
