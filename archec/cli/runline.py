"""The last line that ``archec gather`` writes on stderr, for programs that read the log.

``archec-run`` and a JSON object on one line, however the run ended; docs/operations.md lists its keys.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from archec import __version__
from archec.errors import Exit
from archec.tist import iso

if TYPE_CHECKING:
    from archec.archive.report import Report

WORD = "archec-run"
_META = "archec.run-line"
_MAX_MESSAGE = 500
_STATES = {Exit.LOCKED: "locked", Exit.USAGE: "usage", Exit.INTERRUPTED: "interrupted"}


@dataclass(slots=True)
class RunLine:
    """What the command line knows of a run; ``report`` is filled in as the run proceeds."""

    began: float = field(default_factory=time.monotonic)
    report: Report | None = None
    over: bool = False

    def take(self, report: Report) -> None:
        """The run has begun."""
        self.report = report

    def finished(self) -> Report:
        """The run has ended; returns its report."""
        if self.report is None:
            raise ValueError("there was no run")
        self.over = True
        return self.report


def begin(meta: dict[str, Any]) -> RunLine:
    """Puts the line of a new run into a command's context."""
    found = meta[_META] = RunLine()
    return found


def is_under_way(meta: Mapping[str, Any]) -> bool:
    """Whether a run has begun and not ended."""
    known = cast("RunLine | None", meta.get(_META))
    return known is not None and known.report is not None and not known.over


def line(meta: Mapping[str, Any], code: int, message: str) -> str | None:
    """The line for a command that exits with ``code``; None if it did not try to run (``--help``)."""
    known = cast("RunLine | None", meta.get(_META))
    if known is None and code == Exit.DONE:
        return None
    known = known or RunLine()
    value: dict[str, Any] = {"run": None, "state": _state(known, code), "exit": code, "time": iso(int(time.time()))}
    value["seconds"] = round(time.monotonic() - known.began, 3)
    value["version"] = __version__
    if known.report is not None:
        value |= _figures(known.report)
        message = message or known.report.message
    value["message"] = message[:_MAX_MESSAGE]
    return f"{WORD} {json.dumps(value)}"


def _state(known: RunLine, code: int) -> str:
    if known.over and known.report is not None:
        return known.report.state
    return _STATES.get(Exit(code), "failed") if code in set(Exit) else "failed"


def _figures(report: Report) -> dict[str, Any]:
    return {
        "run": report.run,
        "data_set": report.data_set,
        "templates": sum(report.templates.values()),
        "tobis": {kind: count for kind, count in sorted(report.tobis.items()) if count > 0},
        "fobis": {kind: count for kind, count in sorted(report.fobis.items()) if count},
        "held_back": sum(report.held_back.values()),
        "problems": sum(report.problem_counts.values()),
        "requests": report.requests,
        "fetched_bytes": report.fetched_bytes,
        "stored_bytes": report.stored_bytes,
    }
