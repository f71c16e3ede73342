"""Decisions of the operator: runs that read no data set and visit no file, but change the conclusions of the archive.

They accept losses that were held back, and retract and restore a wrong data set or a run's visits to files. Nothing is
removed: claims and bytes stay, and the conclusions are derived from the other data sets and visits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from archec import __version__
from archec.archive.claims import judge_again, last_shown
from archec.archive.commit import CommitItem, Committer, committing
from archec.archive.evidence import evidence_of
from archec.archive.file_loss import loss_of
from archec.archive.held_back import held_back_record, held_losses, journalled, without_accepted
from archec.archive.opening import Archive, last_run, locked
from archec.archive.report import Report
from archec.archive.retracted_visits import Withdrawn, conclude_without, visits_files
from archec.archive.runs import end_run, known_run, newest_gathering, next_run, read_clock, run_named
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import Record, Retraction, RunStart
from archec.catalogue.model import DataSet, HeldBack, Kind
from archec.config import Config
from archec.errors import NotHeld, UsageError
from archec.ids import archive_of
from archec.tist import iso
from archec.units import counted

_SHORTEST = 8
"""Minimum number of digits of a sha256 that select a data set."""


class DecisionRun(NamedTuple):
    """A decision in progress: the report of its run, and the committer."""

    report: Report
    committer: Committer

    def journal(self, *records: Record) -> None:
        """Journals the decision as one batch before all of its consequences: if the run is interrupted after it, the
        next one completes them."""
        for record in records:
            self.committer.add(CommitItem(record))
        self.committer.commit()


@contextmanager
def _locked(config: Config, kind: str) -> Iterator[Archive]:
    """The locked archive. A decision that was interrupted is completed first, so that it can be made again or reversed.
    """
    with locked(config, kind) as archive:
        last = last_run(archive.layout)
        if last is not None and last.start is not None and last.start.kind in ("losses", "retract"):
            next_run(archive)
        yield archive


@contextmanager
def deciding(archive: Archive, kind: str, options: Mapping[str, Any]) -> Iterator[DecisionRun]:
    """A run of this kind on a locked archive, from the first line of its journal, with ``options``, to the last."""
    run = next_run(archive)
    report = Report(run, 0, "none", "")
    with committing(archive, run) as committer:
        start = RunStart(run, kind=kind, options=dict(options), software=__version__, clock=read_clock())
        committer.add(CommitItem(start))
        yield DecisionRun(report, committer)
        report.state = "done"
        end_run(archive.catalogue, committer, report)


class Accepted(NamedTuple):
    """The result of a decision: its run, the number of accepted losses, and the obis that have returned instead."""

    run: int
    accepted: int
    back: list[str]


def awaiting(catalogue: Catalogue) -> list[HeldBack]:
    """The losses that await a decision: those held back, unless a later data set decides again because it holds back
    losses of the same archive, or could judge it."""
    records = [item for item in catalogue.held_back() if item.groups]
    found = [item for item in records if item.kind == "fobi"]
    if len(found) == len(records):
        return found
    evidence = evidence_of(catalogue)
    by_run = {item.run: item for item in records if item.kind == "tobi"}
    decided: set[str] = set()
    names = {name for item in by_run.values() for name in item.groups}
    for data_set in reversed(evidence.data_sets):
        if names <= decided:
            break
        if evidence.speaks(data_set):
            look, record = evidence.look(data_set), by_run.get(data_set.run)
            groups = record.groups if record is not None else {}
            if left := {name: group for name, group in groups.items() if name not in decided}:
                found.append(HeldBack(data_set.run, "tobi", left))
            decided.update(groups, (name for name in names if look.judges(name)))
    return sorted(found, key=lambda item: (item.run, item.kind))


def accept(config: Config, run: int, wanted: Collection[str]) -> Accepted:
    """Accepts losses that a run holds back: all of them, or those of the archives, archives' directories, hosts and ids
    in ``wanted``. For templates, ``run`` is the one that read their data set.

    A template is lost from the first data set on that lacks it. Templates and files that a later data set or visit has
    shown to be back stay as they are. Raises :class:`NotHeld` if the run holds back none of these losses.
    """
    with _locked(config, "losses") as archive:
        catalogue = archive.catalogue
        known_run(catalogue, run)
        files = _chosen(catalogue, run, "fobi", wanted)
        data_set = None
        with suppress(NotHeld):
            data_set = find(catalogue, catalogue.data_sets(), str(run))
        retracted = data_set.retracted if data_set is not None else ""
        if retracted and not files:
            raise UsageError(
                f"the data set of run {run} ({iso(run)}) is retracted: {retracted}",
                hint=f"'archec retract {run} --undo' reverses that",
            )
        tobis = _chosen(catalogue, data_set.run, "tobi", wanted) if data_set is not None and not retracted else set()
        if not (files or tobis):
            which = f" of {', '.join(sorted(wanted))}" if wanted else ""
            hint = "'archec losses' lists what is held back"
            raise NotHeld(f"run {run} ({iso(run)}) holds back no losses{which}", hint=hint)
        with deciding(archive, "losses", {"run": run, "accept": sorted(wanted)}) as decision:
            report, back = decision.report, set[str]()
            if files:
                back.update(_accept_files(archive, run, files, decision))
            if data_set is not None and tobis:
                evidence = evidence_of(catalogue)
                found = catalogue.obis("tobi", tobis).values()
                accepted = {obi.id for obi in found if last_shown(obi.claims, evidence) < data_set.key}
                back.update(obi.id for obi in found if obi.id not in accepted)
                still = without_accepted(catalogue, evidence, data_set, accepted)
                decision.journal(*(line for record, lists in still for line in journalled(catalogue, record, lists)))
                report.tobis["lost"] = judge_again(
                    catalogue, sorted(accepted), evidence_of(catalogue), report.run, decision.committer
                )
    return Accepted(report.run, len(files) + len(tobis) - len(back), sorted(back))


def _chosen(catalogue: Catalogue, run: int, kind: Kind, wanted: Collection[str]) -> set[str]:
    """The losses of this kind that a run holds back, as far as they are wanted."""
    return {
        obi for item in catalogue.held_back() if (item.run, item.kind) == (run, kind)
        for group, obi in held_losses(catalogue, item)
        if not wanted or not {group, archive_of(obi), obi}.isdisjoint(wanted)
    }  # fmt: skip


def _accept_files(archive: Archive, run: int, accepted: Collection[str], decision: DecisionRun) -> list[str]:
    """Accepts losses of files; returns those whose last visit found them. They are no longer held back either."""
    catalogue = archive.catalogue
    left = [
        (host, url) for item in catalogue.held_back() if (item.run, item.kind) == (run, "fobi")
        for host, url in held_losses(catalogue, item) if url not in accepted
    ]  # fmt: skip
    back: list[str] = []
    for fobi in catalogue.obis("fobi", accepted).values():
        loss = loss_of(archive.config, fobi, decision.report.run)
        if loss is None:
            back.append(fobi.id)
        else:
            decision.committer.add(CommitItem(loss))
            decision.report.visited(loss)
    decision.journal(*journalled(catalogue, *held_back_record(run, left, "fobi")))
    return back


class Retracted(NamedTuple):
    """The result of a retraction: its run, the data set, and the number of tobis whose history changed."""

    run: int
    data_set: DataSet
    changed: int


def retract(config: Config, wanted: str, reason: str, *, undo: bool = False) -> Retracted:
    """Retracts a data set, or reverses that.

    ``wanted`` is the run that read it, or the sha256 of its file or a prefix of that. Raises :class:`NotHeld` if there
    is no such data set, :class:`UsageError` if there are several, or if nothing would change.
    """
    with _locked(config, "retract") as archive:
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
            report.kind = "tarball" if data_set.sha256 else "directory"
            decision.journal(*(Retraction(item.run, reason, undo) for item in _same(known, data_set)))
            changed = judge_again(catalogue, None, evidence_of(catalogue), report.run, decision.committer)
            verdict = "counts again" if undo else "is retracted"
            report.message = f"the data set of run {data_set.run} {verdict}: {counted(changed, 'template')} changed"
    return Retracted(report.run, data_set, changed)


def retract_visits(config: Config, run: int, reason: str, *, undo: bool = False) -> tuple[int, Withdrawn]:
    """Retracts the visits of a gathering, or reverses that. Returns the run that does so, and the result.

    Raises :class:`NotHeld` if there is no such run, :class:`UsageError` if it visited no files or nothing would
    change.
    """
    with _locked(config, "retract") as archive:
        found = known_run(archive.catalogue, run)
        if found.kind != "gather":
            raise UsageError(
                f"run {run} ({iso(run)}) is of the kind {found.kind}: only a gathering's visits can be retracted",
                hint="'archec runs' lists the gatherings",
            )
        if not visits_files(archive, run):
            raise UsageError(f"run {run} ({iso(run)}) visited no files", hint=f"'archec runs {run}' shows what it did")
        if bool(found.retracted) != undo:
            said = f"are retracted: {found.retracted}" if found.retracted else "are not retracted"
            raise UsageError(f"the visits of run {run} ({iso(run)}) {said}")
        with deciding(archive, "retract", {"visits": run, "reason": reason, "undo": undo}) as decision:
            decision.journal(Retraction(run, reason, undo, visits=True))
            report = decision.report
            done = conclude_without(archive, run, decision.committer)
            verdict = "count again" if undo else "are retracted"
            figures = f"{counted(done.changed, 'file')} changed, {done.due:,} due now"
            report.message = f"the visits of run {run} {verdict}: {figures}"
    return report.run, done


def find(catalogue: Catalogue, known: list[DataSet], wanted: str) -> DataSet:
    """The data set that a run read, or that has this sha256. If several runs read it, it is listed under the first."""
    number = run_named(lambda: newest_gathering(catalogue), wanted)
    found = [item for item in known if item.run == number]
    run = catalogue.run(number) if number is not None else None
    if not found and run is not None:
        same = [item for item in known if item.tist == run.data_set and run.source.rpartition("/")[2] == item.name]
        found = [item for item in same if item.run < run.tist and run.state != "damaged"]
        if same and not found:
            runs = " and ".join(str(item.run) for item in same)
            raise NotHeld(
                f"run {run.tist} ({iso(run.tist)}) noted nothing of {same[0].name}",
                hint=f"a data set of this name and date was noted by run {runs}",
            )
    if not found and len(wanted) >= _SHORTEST:
        found = [item for item in known if item.sha256.startswith(wanted.lower())]
    if not found:
        raise NotHeld(
            f"{wanted}: neither a run that read a data set of templates nor the sha256 of one",
            hint="'archec runs' lists them",
        )
    if len({(item.tist, item.sha256) for item in found}) > 1:
        runs = ", ".join(f"{item.run} (of {iso(item.tist)})" for item in found)
        raise UsageError(f"{wanted}: there are several such data sets", hint=f"give the run of one of them: {runs}")
    return found[0]


def _same(known: list[DataSet], data_set: DataSet) -> list[DataSet]:
    """The data set, and the partly read ones with the same file and date."""
    if not data_set.sha256:
        return [data_set]
    return [item for item in known if (item.tist, item.sha256) == (data_set.tist, data_set.sha256)]
