"""The last line that ``archec gather`` writes on stderr: one run for a machine that reads the log.

``archec-run`` and a JSON object on one line, whatever became of the run; docs/operations.md has its keys.
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
    from archec.gather.report import Report

__all__ = ["WORD", "RunLine", "begin", "is_under_way", "line"]

WORD = "archec-run"
_META = "archec.run-line"
_MOST_MESSAGE = 500
_STATES = {Exit.LOCKED: "locked", Exit.USAGE: "usage", Exit.INTERRUPTED: "interrupted"}


@dataclass(slots=True)
class RunLine:
    """A run as far as the command line knows it; ``report`` is filled while the run goes on."""

    began: float = field(default_factory=time.monotonic)
    report: Report | None = None
    over: bool = False

    def take(self, report: Report) -> None:
        """There is a run."""
        self.report = report

    def finished(self) -> Report:
        """The run has come to its end; its report."""
        if self.report is None:
            raise ValueError("there was no run")
        self.over = True
        return self.report


def begin(meta: dict[str, Any]) -> RunLine:
    """Puts a line that is to be written into a command's context."""
    found = meta[_META] = RunLine()
    return found


def is_under_way(meta: Mapping[str, Any]) -> bool:
    """Whether a run has begun and not come to its end."""
    known = cast("RunLine | None", meta.get(_META))
    return known is not None and known.report is not None and not known.over


def line(meta: Mapping[str, Any], code: int, message: str) -> str | None:
    """The line for a command that leaves with ``code``; None for one that did not try to run (``--help``)."""
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
    value["message"] = message[:_MOST_MESSAGE]
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
