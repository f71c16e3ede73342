"""Retraction: a data set that turned out wrong, or a run's visits to files, do not count any more; and its undoing.

Nothing is removed: claims and bytes stay, and what the archive concludes is what follows from the other data sets and
visits.
"""

from __future__ import annotations

from typing import NamedTuple

from archec.archive.conclusions import evidence_of, judge_again
from archec.archive.retracting import Withdrawn, conclude_without
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import DataSet
from archec.catalogue.records import Retraction
from archec.config import Config
from archec.errors import NotHeld, UsageError
from archec.gather.decisions import deciding, locked
from archec.tist import iso

_SHORTEST = 8
"""Digits of a sha256 that name a data set."""


class Retracted(NamedTuple):
    """What a retraction came to: its run, the data set, and how many tobis have another history now."""

    run: int
    data_set: DataSet
    changed: int


def retract(config: Config, wanted: str, reason: str, *, undo: bool = False) -> Retracted:
    """Makes a data set not count, or count again.

    ``wanted`` is the run that read it, or the sha256 of its file or the beginning of it. Raises :class:`NotHeld` where
    there is no such data set, :class:`UsageError` where there are several, or where nothing would change.
    """
    with locked(config, "retract") as archive:
        catalogue = archive.catalogue
        known = catalogue.data_sets()
        data_set = find(catalogue, known, wanted)
        if bool(data_set.retracted) != undo:
            said = f"is retracted: {data_set.retracted}" if data_set.retracted else "is not retracted"
            raise UsageError(f"the data set {data_set.name} of {iso(data_set.tist)} (run {data_set.run}) {said}")
        options = {"data_set": data_set.run, "reason": reason, "undo": undo}
        with deciding(archive, "retract", options) as decision:
            report = decision.report
            report.data_set, report.source = data_set.tist, data_set.name
            decision.journal(*(Retraction(item.run, reason, undo) for item in _same(known, data_set)))
            changed = judge_again(catalogue, None, evidence_of(catalogue), report.run, decision.committer)
            report.message = f"{changed:,} templates have another history"
    return Retracted(report.run, data_set, changed)


def retract_visits(config: Config, run: int, reason: str, *, undo: bool = False) -> tuple[int, Withdrawn]:
    """Makes the visits of a gathering not count, or count again: the run that does so, and what it came to.

    Raises :class:`NotHeld` where there is no such gathering, :class:`UsageError` where nothing would change.
    """
    with locked(config, "retract") as archive:
        found = next(iter(archive.catalogue.newest_runs(run + 1, 1)), None)
        if found is None or found.tist != run or found.kind != "gather":
            raise NotHeld(f"{run}: no run that visits files", hint="'archec runs' lists them")
        if bool(found.retracted) != undo:
            said = f"are retracted: {found.retracted}" if found.retracted else "are not retracted"
            raise UsageError(f"the visits of run {run} ({iso(run)}) {said}")
        with deciding(archive, "retract", {"visits": run, "reason": reason, "undo": undo}) as decision:
            decision.journal(Retraction(run, reason, undo, visits=True))
            report = decision.report
            done = conclude_without(archive, run, report.run, decision.committer)
            report.message = f"{done.changed:,} files have another history; {done.due:,} are due"
    return report.run, done


def find(catalogue: Catalogue, known: list[DataSet], wanted: str) -> DataSet:
    """The data set that a run read, or with this sha256."""
    found = [item for item in known if str(item.run) == wanted]
    if not found and wanted.isdigit():
        run = next(iter(catalogue.newest_runs(int(wanted) + 1, 1)), None)
        if run is not None and run.tist == int(wanted):
            found = [item for item in known if item.tist == run.data_set and _name_of(run.source) == item.name]
    if not found and len(wanted) >= _SHORTEST:
        found = [item for item in known if item.sha256.startswith(wanted.lower())]
    if not found:
        raise NotHeld(f"{wanted}: no run that read a data set, and no sha256 of one", hint="'archec runs' lists them")
    if len({(item.tist, item.sha256) for item in found}) > 1:
        runs = ", ".join(f"{item.run} (of {iso(item.tist)})" for item in found)
        raise UsageError(f"{wanted}: there are several such data sets", hint=f"give the run of one of them: {runs}")
    return found[0]


def _name_of(source: str) -> str:
    return source.rpartition("/")[2]


def _same(known: list[DataSet], data_set: DataSet) -> list[DataSet]:
    """The data set, and what is known of the same file at the same date in part only."""
    if not data_set.sha256:
        return [data_set]
    return [item for item in known if (item.tist, item.sha256) == (data_set.tist, data_set.sha256)]
