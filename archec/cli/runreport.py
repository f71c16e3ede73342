"""The report of a run: a table, and the machine-readable last line that ``archec gather`` writes to a log.

That line is ``archec-run`` and a JSON object, however the run ended; docs/formats.md lists its keys. A command with
several runs writes one after each run. It goes to stderr, but not to a terminal.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET

from archec import __version__
from archec.errors import Exit
from archec.tist import iso
from archec.units import counted, human_duration, human_size, listed

if TYPE_CHECKING:
    from archec.archive.report import FetchFigures, HostFigures, ProblemFigures, Report, RunReport

INDENT = 12
"""Columns before the values of a table."""
_MAX_PROBLEMS = 20
_MAX_ARCHIVES = 10
WORD = "archec-run"
RUN_LINE = "archec.run-line"
_MAX_MESSAGE = 500
_STATES = {Exit.DONE: "done", Exit.LOCKED: "locked", Exit.USAGE: "usage", Exit.INTERRUPTED: "interrupted"}


# -- the table ------------------------------------------------------------------------------------


def gather_table(report: RunReport, *, message_printed: bool = False) -> list[str]:
    """The lines of the table of a gathering, without its message if that was printed before."""
    data_set = report.data_set
    rows: list[tuple[str, str]] = [
        ("run", f"{report.run}  {report.run_time}  {report.state}"),
        ("data set", f"{data_set.source}  as of {data_set.time}" if data_set.time else data_set.source),
    ]
    if not data_set.whole:
        damaged = "nothing of it was noted" if report.state == "damaged" else "nothing counts as lost"
        rows.append(("", f"damaged: {damaged}"))
    files = report.files
    unread = f", {files.unreadable:,} without readable templates" if files.unreadable else ""
    rows.append(("read", f"{counted(files.read, 'template file')}{unread}, {human_size(files.bytes)}"))
    if files.other:
        rows.append(("", f"{counted(files.other, 'other file')}, not read"))
    templates = report.templates
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in templates.by_type.items())
    rows.append(("", counted(templates.total, "template") + (f" ({kinds})" if kinds else "")))
    if templates.duplicates:
        rows.append(("", counted(templates.duplicates, "repeated handle")))
    if templates.without_handle:
        rows.append(("", f"{templates.without_handle:,} without a handle"))
    if templates.conflicts:
        rows.append(("", f"{templates.conflicts:,} in conflict with another data set of the same date"))
    rows.append(("templates", listed(report.tobis)))
    unjudged = report.not_judged
    for number, (archive, words) in enumerate(islice(unjudged.items(), _MAX_ARCHIVES)):
        rows.append(("" if number else "not judged", f"{sum(words.values()):,} of {archive}: {listed(words)}"))
    if len(unjudged) > _MAX_ARCHIVES:
        rows.append(("", f"and those of {counted(len(unjudged) - _MAX_ARCHIVES, 'more archive')}"))
    for code, count in report.held_back.items():
        accept = f"archec losses accept {report.run} {code}"
        rows.append(("held back", f"{counted(count, 'loss', 'losses')} of {code}: {accept}"))
    fetch = report.fetch
    if report.fobis:
        rows.append(("files", listed(report.fobis)))
    if report.fobis or fetch.requests:
        rows.append(("fetched", f"{counted(fetch.requests, 'request')}, {human_size(fetch.bytes)}"))
    if fetch.deferred:
        rows.append(("deferred", deferred_files(fetch)))
    ended = _ended(report, "" if message_printed else report.message)
    return [*_table([*rows, *ended]), *_problems(report.problems, report.message)]


def other_table(kind: str, report: RunReport) -> list[str]:
    """The table of a run that reads no data set: an ingest of filesets, or a decision of the operator."""
    rows = [("run", f"{report.run}  {report.run_time}  {report.state}"), ("kind", kind)]
    data_set = report.data_set
    if data_set.tist:
        rows.append(("data set", f"{data_set.source}  as of {data_set.time}"))
    for label, counts in (("templates", report.tobis), ("files", report.fobis)):
        if any(counts.values()):
            rows.append((label, listed(counts)))
    if report.filesets is not UNSET:
        rows.append(("filesets", listed(report.filesets)))
    return _table([*rows, *_ended(report, report.message)])


def deferred_files(fetch: FetchFigures) -> str:
    """The number of files that a run deferred to the next one, and the reasons."""
    return f"{counted(fetch.deferred, 'file')}, for the next run to try: {listed(fetch.reasons)}"


def host_outcomes(host: HostFigures) -> str:
    """The results of the visits to a host, and its deferred files."""
    outcomes = listed(host.outcomes, "no visits")
    return outcomes + (f", {host.deferred:,} deferred ({listed(host.reasons)})" if host.deferred else "")


def _ended(report: RunReport, message: str) -> list[tuple[str, str]]:
    """The rows at the end: bytes stored, duration, message."""
    rows = [("stored", human_size(report.stored_bytes))]
    if report.seconds:
        rows.append(("took", ", ".join(f"{phase} {human_duration(s)}" for phase, s in report.seconds.items())))
    if message:
        rows.append(("message", message))
    return rows


def _table(rows: list[tuple[str, str]]) -> list[str]:
    return [f"{label:<{INDENT - 1}} {text}" for label, text in rows]


def _problems(problems: ProblemFigures, message: str) -> list[str]:
    """The problems, except the one already in ``message``."""
    total = sum(problems.by_code.values())
    if not total:
        return []
    lines = [f"{'problems':<11} {listed(problems.by_code)}"]
    for problem in problems.first[:_MAX_PROBLEMS]:
        if problem.message and problem.message in message:
            continue
        lines.append(f"  {problem}")
    if total > _MAX_PROBLEMS:
        lines.append(f"  ... and {total - min(_MAX_PROBLEMS, len(problems.first)):,} more")
    return lines


# -- the last line --------------------------------------------------------------------------------


@dataclass(slots=True)
class RunLine:
    """The command line's view of a run; ``report`` is filled in as the run proceeds. ``message`` is for the line if
    nothing else says why the command fails.

    A command stores it in its context's ``meta`` under :data:`RUN_LINE`.
    """

    began: float = field(default_factory=time.monotonic)
    report: Report | None = None
    over: bool = False
    message: str = ""

    def take(self, report: Report) -> None:
        """Called when the run has begun."""
        self.report, self.over = report, False

    def finished(self) -> Report:
        """Called when the run has ended; returns its report."""
        if self.report is None:
            raise ValueError("there was no run")
        self.over = True
        return self.report

    @property
    def can_be_resumed(self) -> bool:
        """Whether the run has begun but not ended, and could be resumed."""
        return self.report is not None and not self.over and self.report.resumable

    def write(self, code: int, message: str) -> None:
        """Writes the line of this run, which ends with ``code``, to stderr unless that is a terminal. Resets this
        object for the next run."""
        if not sys.stderr.isatty():
            click.echo(_line(self, code, message), err=True)
        self.began, self.report, self.over, self.message = time.monotonic(), None, False, ""


def _line(known: RunLine, code: int, message: str) -> str:
    began = known.report.run if known.report is not None else 0
    ended = max(int(time.time()), began)  # tists may be ahead of the clock
    value: dict[str, Any] = {"run": None, "state": _state(known, code), "exit": code, "time": iso(ended)}
    value["seconds"] = round(time.monotonic() - known.began, 3)
    value["version"] = __version__
    if known.report is not None:
        value |= _figures(known.report)
        message = message or known.report.message
    value["message"] = (message or known.message)[:_MAX_MESSAGE]
    return f"{WORD} {json.dumps(value)}"


def _state(known: RunLine, code: int) -> str:
    if known.over and known.report is not None:
        return known.report.state
    return _STATES.get(Exit(code), "failed") if code in set(Exit) else "failed"


def _figures(report: Report) -> dict[str, Any]:
    return {
        "run": report.run,
        "data_set": report.data_set or None,
        "templates": sum(report.templates.values()),
        "tobis": {kind: count for kind, count in sorted(report.tobis.items()) if count > 0},
        "fobis": {kind: count for kind, count in sorted(report.fobis.items()) if count},
        "held_back": sum(report.held_back.values()),
        "problems": sum(report.problem_counts.values()),
        "requests": report.requests,
        "deferred": report.deferred.total(),
        "reasons": dict(sorted(report.deferred.items())),
        "fetched_bytes": report.fetched_bytes,
        "stored_bytes": report.stored_bytes,
    } | ({"filesets": dict(sorted(report.filesets.items()))} if report.filesets is not None else {})
