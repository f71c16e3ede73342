"""The runs and their states, newest first: from the catalogue and the newest journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from msgspec import structs, to_builtins

from archec.archive.opening import UNFINISHED, Archive, last_run
from archec.archive.report import NOT_ASKED, UNANSWERED, RunReport
from archec.archive.runs import known_run, newest_first, newest_gathering, recounted, run_named
from archec.catalogue.documents import read
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import DataSet, Kind, Run
from archec.errors import BadName, CatalogueError, CorruptJournal, NotHeld, UsageError
from archec.gather.operator_decisions import awaiting, find
from archec.store.layout import Layout, journals
from archec.store.lock import holder
from archec.tist import MAX_TIST, iso

_T = TypeVar("_T")
SHOWN: dict[str, str] = {
    "running": "active",
    "done": "finished",
    "held-back": "finished, and holds losses back",
    "budget": "its budget was exhausted",
    "network-down": "finished, but none of three or more hosts answered",
    "interrupted": "stopped by a signal or a kill",
    "damaged": "its data set is damaged; nothing was noted from it",
    "failed": "stopped by an error",
}
"""The states of a run: the same in lists, in its report and in the machine-readable line."""

_FINAL = SHOWN.keys() - {"running", "interrupted"}
"""The states of runs that have ended; others may be recorded before."""


@dataclass(frozen=True, slots=True)
class RunView:
    """One run. ``state`` is one of :data:`SHOWN`; ``recorded`` is the state in the catalogue. ``report`` is None if
    there is none yet. ``resumable``: ``--resume`` would continue it. ``retracted`` is why its visits do not count,
    ``data_set_retracted`` why its data set does not."""

    run: int
    state: str
    recorded: str
    data_set: int
    kind: str
    form: str
    source: str
    options: dict[str, Any]
    report: RunReport | None = None
    resumable: bool = False
    retracted: str = ""
    data_set_retracted: str = ""

    @property
    def figures(self) -> RunReport:
        """Its report; one without any counts if it has none yet."""
        return self.report or RunReport()

    @property
    def seconds(self) -> float | None:
        """Its duration in seconds; None if unknown."""
        return sum(self.figures.seconds.values()) if self.figures.seconds else None

    @property
    def message(self) -> str:
        return self.figures.message

    @property
    def unanswered(self) -> bool:
        """Whether it visited files, and no host answered any of its requests."""
        visits = {**self.figures.fobis, **self.figures.fetch.reasons}
        outcomes = {outcome for outcome, count in visits.items() if count} - {"lost", "unnamed", NOT_ASKED}
        return bool(outcomes) and outcomes <= UNANSWERED

    @property
    def problems(self) -> int:
        return sum(self.figures.problems.by_code.values())

    def as_value(self, *, whole: bool = False) -> dict[str, Any]:
        """As JSON values: the values of a row of the list, or everything."""
        when = _iso(self.data_set) if self.data_set else ""
        value: dict[str, Any] = {
            "run": self.run,
            "run_time": _iso(self.run),
            "kind": self.kind,
            "state": self.state,
            "resumable": self.resumable,
            "data_set": {"tist": self.data_set, "time": when, "kind": self.form, "source": self.source},
            "seconds": self.seconds,
            "tobis": self.figures.tobis,
            "fobis": self.figures.fobis,
            "held_back": self.figures.held_back,
            "problems": self.problems,
            "fetch": to_builtins(self.report.fetch) if self.report is not None else {},
            "stored_bytes": self.figures.stored_bytes,
            "message": self.message,
            "retracted": self.retracted,
            "data_set_retracted": self.data_set_retracted,
        }
        if whole:
            value["options"] = self.options
            value["report"] = to_builtins(self.report) if self.report is not None else {}
        return value


def runs(archive: Archive, *, before: int = MAX_TIST + 1) -> Iterator[RunView]:
    """The runs with tist < ``before``, newest first; page by page.

    The figures of a run that was stopped and not resumed cover what it committed, according to its journal.
    """
    files = journals(archive.layout)
    newest = files[-1] if files else None
    who = holder(archive.layout)
    working = who is not None and who.is_run
    waiting: dict[tuple[Kind, int], dict[str, int]] | None = None
    for run in newest_first(archive.catalogue, before):
        view = _view(run)
        if newest is not None and run.tist == newest.tist and not newest.finished and run.state in UNFINISHED:
            view = replace(view, state="running") if working else _stopped(archive.layout, view)
        if view.figures.held_back:
            waiting = _waiting(archive.catalogue) if waiting is None else waiting
            view = _as_of_now(view, waiting)
        yield view


def runs_listed(archive: Archive) -> Iterator[RunView]:
    """All runs as :func:`runs` yields them, with what is said about their data sets."""
    retracted = _retracted(archive.catalogue)
    for view in runs(archive):
        yield replace(view, data_set_retracted=_why_retracted(archive.catalogue, retracted, view))


def view_of(archive: Archive, name: str) -> RunView:
    """The run with this name (:func:`archec.archive.runs.run_named`).

    Raises :class:`BadName` for anything else, :class:`NotHeld` if there is no such run.
    """
    tist = run_named(lambda: newest_gathering(archive.catalogue), name)
    if tist is None:
        raise BadName(f"{name!r} is not a run", hint="give its software tist, or 'last'")
    found = next(runs(archive, before=known_run(archive.catalogue, tist).tist + 1))
    why = _why_retracted(archive.catalogue, _retracted(archive.catalogue), found)
    return replace(found, data_set_retracted=why)


def _retracted(catalogue: Catalogue) -> dict[int, list[DataSet]]:
    """By tist: all data sets of the tists of those that are retracted."""
    known = catalogue.data_sets()
    tists = {item.tist for item in known if item.retracted}
    return {tist: [item for item in known if item.tist == tist] for tist in tists}


def _why_retracted(catalogue: Catalogue, retracted: Mapping[int, list[DataSet]], view: RunView) -> str:
    """Why the data set of a run does not count, empty if it does. Several runs may have read it."""
    with suppress(NotHeld, UsageError):
        if view.data_set in retracted:
            return find(catalogue, retracted[view.data_set], str(view.run)).retracted
    return ""


def _waiting(catalogue: Catalogue) -> dict[tuple[Kind, int], dict[str, int]]:
    """The losses that await a decision: of files by run, of templates by the tist of the data set that the run read."""
    tists = {item.run: item.tist for item in catalogue.data_sets()}
    found: dict[tuple[Kind, int], dict[str, int]] = {}
    for item in awaiting(catalogue):
        key = item.kind, tists[item.run] if item.kind == "tobi" else item.run
        found.setdefault(key, {}).update((name, group.losses) for name, group in item.groups.items())
    return found


def _as_of_now(view: RunView, waiting: dict[tuple[Kind, int], dict[str, int]]) -> RunView:
    """A run with the losses it still holds back, without those accepted since or decided again by a later run."""
    files, templates = (
        {name: losses for name, losses in waiting.get(key, {}).items() if name in view.figures.held_back}
        for key in (("fobi", view.run), ("tobi", view.data_set))
    )
    left = {**files, **templates}
    tobis = {**view.figures.tobis, "held_back": sum(templates.values())}
    state = "done" if view.state == "held-back" and not left else view.state
    return replace(view, state=state, report=structs.replace(view.figures, held_back=left, tobis=tobis))


def _stopped(layout: Layout, view: RunView) -> RunView:
    """The view of the newest run, which is no longer active but whose journal is open."""
    if view.recorded in ("budget", "interrupted"):
        return replace(view, resumable=view.form == "tarball" or view.figures.data_set.merged)
    try:
        last = last_run(layout)
        if last is None or last.start is None or last.start.tist != view.run:
            return view
        view = replace(view, resumable=last.resumable)
        report = recounted(last, last.start)
    except CorruptJournal as error:
        return replace(view, report=structs.replace(view.figures, message=str(error)))
    # The journal says why it failed also if the catalogue could not be written then.
    failed = last.state == "failed"
    report.state = "failed" if failed else view.state
    report.message = str(last.report.get("message", "")) if failed else view.message
    return replace(view, state=report.state, report=report.figures())


def _view(run: Run) -> RunView:
    report, options = _read(RunReport, run.report), _read(dict[str, Any], run.options) or {}
    # A run that failed and was not resumed is recorded as interrupted, with its message.
    stopped = "failed" if report is not None and report.message else "interrupted"
    state = run.state if run.state in _FINAL else stopped
    return RunView(
        run.tist, state, run.state, run.data_set, run.kind, run.form, run.source, options, report,
        retracted=run.retracted,
    )  # fmt: skip


def _read(kind: type[_T], text: str) -> _T | None:
    """What is in a JSON text; None if that is empty, or archec did not write it."""
    with suppress(CatalogueError):
        return read(kind, text) if text else None
    return None


def _iso(tist: int) -> str:
    return iso(tist) if 0 <= tist <= MAX_TIST else ""
