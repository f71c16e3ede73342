"""The template phase of a run: reads, merges, writes what is new or has changed, then decides on losses.

The data set, sorted by id, is merged with the catalogue, sorted by id (:class:`Merge`). An id that is in both with the
same contents at the same place produces no output, which makes a run over an unchanged data set cheap.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from archec.archive.claims import Judgement, Verdict, claim_of, concluded, judged, said, verdict_after
from archec.archive.commit import CommitItem
from archec.archive.evidence import Evidence, NotJudged, coverage_set, directory_of, evidence_of, hides, shows
from archec.archive.held_back import HeldCounts, Loss, group_of, groups_to_hold_back, held_back_record, journalled
from archec.archive.opening import tobis_in_journals
from archec.catalogue.documents import ObiState, history_of
from archec.catalogue.journal_lines import DataSetRead, ObiChange, RunEnd, SetAdded, merged
from archec.catalogue.model import Claim, Coverage, DataSet, HeldBack, KeyedSet, Obi
from archec.gather.dataset import Chosen, dated_by_members, refuse_damaged, refuse_nothing, refuse_retracted
from archec.gather.directory_cache import DirectoryMemory
from archec.gather.options import Environment
from archec.gather.spool import SeenRow
from archec.gather.template_texts import WORKER_HINT, Job, Reading, WrittenTemplate, read_data_set, writing
from archec.history import History
from archec.ids import archive_of
from archec.paging import batched
from archec.redif.files import DataSetSource
from archec.redif.problems import Problem
from archec.store.durable import open_whole
from archec.store.writer import Placement, sweep_parts
from archec.workers.pool import Done, Pool

_CHUNK = 500
_INLINE = 2 << 20
_JOB_WEIGHT = 1000
_AHEAD = 6
"""Maximum number of chunks in progress per worker."""
_BATCH = 1000
_id = attrgetter("id")


class Case(NamedTuple):
    """A tobi whose history the data set may change: the template that counts in the data set (None if there is none),
    and whether the tobi is in the catalogue."""

    id: str
    row: SeenRow | None
    known: bool


class Merge:
    """A merge, a pure function of its two streams, and its counts, which are filled while it runs.

    With ``quick`` False every tobi is a case: the data set is not whole, supersedes others, or is superseded.
    ``unknown`` counts the tobis that the data set does not judge, by archive and reason.
    """

    def __init__(self, coverage: Coverage, tist: int, *, quick: bool) -> None:
        self._coverage, self._tist, self._quick = coverage, tist, quick
        self.distinct = 0
        self.duplicates = 0
        self.same = 0
        self.held = HeldCounts(Counter(), Counter())
        self.unknown: Counter[tuple[str, str]] = Counter()

    def cases(self, found: Iterable[tuple[SeenRow, int]], known: Iterable[ObiState]) -> Iterator[Case]:
        """Every tobi that the data set may change, by id."""
        states = iter(known)
        state = next(states, None)
        for row, others in found:
            obi = row.id
            self.distinct += 1
            self.duplicates += others
            while state is not None and state.id < obi:
                yield from self._absent(state)
                state = next(states, None)
            if state is None or state.id != obi:
                yield Case(obi, row, known=False)
                continue
            self._count(state)
            if (
                self._quick
                and state.since <= self._tist
                and state.place == row.place
                and state.state == row.sha256
                and (not self._coverage.unread or shows(self._coverage, row.place))
            ):
                self.same += 1
            else:
                yield Case(obi, row, known=True)
            state = next(states, None)
        while state is not None:
            yield from self._absent(state)
            state = next(states, None)

    def _absent(self, state: ObiState) -> Iterator[Case]:
        self._count(state)
        if self._quick and state.since <= self._tist:
            if state.state is None:
                return
            hidden = hides(self._coverage, state.place)
            if hidden is not None and not shows(self._coverage, state.place):
                self.not_judged(state.id, state.place, hidden)
                return
        yield Case(state.id, None, known=True)

    def not_judged(self, handle: str, place: str, why: NotJudged) -> None:
        """Counts a tobi that is held and that the data set does not judge."""
        self.unknown[archive_of(handle) or directory_of(place), why.word] += 1

    def _count(self, state: ObiState) -> None:
        now = state.state if state.last <= self._tist else _history_of(state).at(self._tist)
        if now is not None:
            self.held.archives[archive_of(state.id)] += 1
            if state.since <= self._tist:
                self.held.directories[directory_of(state.place)] += 1


@dataclass(frozen=True, slots=True)
class TemplatePhase:
    """The reading of the data set ``chosen``. ``dry``: nothing is stored."""

    of: Environment
    memory: DirectoryMemory | None
    chosen: Chosen
    dry: bool = False

    @property
    def workers(self) -> int:
        return 1 if self.dry else self.of.archive.config.processes

    def run(self, source: DataSetSource, *, dated: Callable[[Chosen], None]) -> None:
        """Reads the data set and merges it with the catalogue. ``dated`` receives the data set with its date if that is
        only known after reading it. Raises an ArchecError if the run must stop."""
        report, options, memory = self.of.report, self.of.options, self.memory
        with report.timed("templates"):
            before = memory.repeated(self.chosen.tist) if memory is not None and options.repeated is None else None
            if before is not None:
                report.restore(before)
                report.merged = True
                self.repeat()
            else:
                self._read(source, dated)
                report.merged = True
            if memory is not None:
                memory.keep(report)

    def _read(self, source: DataSetSource, dated: Callable[[Chosen], None]) -> None:
        of, chosen, phase = self.of, self.chosen, self
        of.meter.phase("reading templates", source.size or None)
        reading = read_data_set(source, of, self.memory, workers=self.workers)
        refuse_damaged(chosen, reading, salvage=of.options.salvage)
        refuse_nothing(chosen, of.report.files, of.archive.catalogue)
        if not chosen.tist:
            chosen = dated_by_members(chosen, source.newest, whole=reading.whole)
            refuse_retracted(chosen, of.archive.catalogue)
            phase = replace(self, chosen=chosen)
            of.report.data_set = chosen.tist
            dated(chosen)
        phase.merge(reading)

    def repeat(self) -> None:
        """Handles a data set that is equal to the newest one."""
        of = self.of
        newest = max(of.archive.catalogue.data_sets(), key=lambda item: item.key)
        of.committer.add(CommitItem(RunEnd(of.report.run, "running", of.report.as_value())))
        chosen = self.chosen
        data_set = msgspec.structs.replace(newest, tist=chosen.tist, run=of.report.run, name=chosen.name)
        of.committer.add(CommitItem(DataSetRead(data_set)))
        of.committer.commit()

    def merge(self, reading: Reading) -> None:
        chosen, committer, catalogue, report = self.chosen, self.of.committer, self.of.archive.catalogue, self.of.report
        before = evidence_of(catalogue)
        known = _known_as(before, chosen, whole=reading.whole)
        coverage = reading.coverage
        if known is not None and before.coverage(known).complete:
            coverage = msgspec.structs.replace(coverage, complete=True)
        report.complete = coverage.complete
        kept = coverage_set(coverage)
        run = known.run if known is not None else report.run
        key = kept.key if reading.whole else ""
        data_set = DataSet(chosen.tist, run, chosen.name, key, chosen.sha256, reading.whole)
        evidence = before.with_data_set(data_set, (kept,))
        newest = not before.data_sets or before.data_sets[-1].tist < data_set.tist
        merging = _Merging(self, evidence, data_set, newest=newest)
        quick = data_set.whole and _leaves_others(before, evidence, data_set)
        held = merging.merge(reading.left_out, Merge(coverage, chosen.tist, quick=quick))
        held_back, lists = merging.losses(held, kept)
        if held_back.groups or any(item.run == run for item in catalogue.held_back()):
            for line in journalled(catalogue, held_back, lists):
                committer.add(CommitItem(line))
        if data_set.coverage and catalogue.keyed(kept.key) is None:
            committer.add(CommitItem(SetAdded.of(kept)))
        # In this order, so that a run marked as merged has its report.
        committer.add(CommitItem(RunEnd(report.run, "running", report.as_value())))
        committer.add(CommitItem(DataSetRead(data_set)))
        committer.commit()


def _known_as(evidence: Evidence, chosen: Chosen, *, whole: bool) -> DataSet | None:
    """The known data set with these bytes and this date."""
    wanted = chosen.tist, chosen.sha256, whole
    known = evidence.data_sets if chosen.sha256 else ()
    return next((item for item in known if (item.tist, item.sha256, item.whole) == wanted), None)


def _leaves_others(before: Evidence, after: Evidence, data_set: DataSet) -> bool:
    """Whether a data set counts, and does not change which others count."""
    others = [item for item in before.data_sets if item.tist == data_set.tist and item.run != data_set.run]
    return after.speaks(data_set) and all(before.speaks(item) == after.speaks(item) for item in others)


class _Merging:
    """One merge in progress."""

    def __init__(self, phase: TemplatePhase, evidence: Evidence, data_set: DataSet, *, newest: bool) -> None:
        self._phase, self._of = phase, phase.of
        self._evidence, self._data_set, self._newest = evidence, data_set, newest
        self._report, self._spool, self._committer = self._of.report, self._of.spool, self._of.committer
        self._waiting: dict[str, tuple[Obi, list[Claim], Judgement, SeenRow]] = {}
        """By id, the templates that are being written: their known states, the claims to add, and the resulting
        judgements."""
        refused = {item.id: item for item in self._of.archive.catalogue.refused() if item.id}
        taken = self._of.archive.catalogue.obis("tobi", refused)  # accepted by the database since then
        self._refused = {
            obi: item.state
            for obi, item in refused.items()
            if obi not in taken or all(claim.run <= item.run for claim in taken[obi].claims)
        }
        self._journalled: dict[str, Obi] | None = None
        self._losses: list[Loss] = []
        self._same_date = [
            item for item in evidence.data_sets if item.tist == data_set.tist and item.run != data_set.run
        ]

    # -- present templates ------------------------------------------------------------------------

    def merge(self, left_out: frozenset[int], merge: Merge) -> HeldCounts:
        """Commits everything from the data set except its losses, which are spooled. Returns the number of held
        tobis. ``left_out`` are members of the data set that do not count."""
        phase, tist, repeated = self._phase, self._data_set.tist, self._of.options.repeated
        self._of.meter.phase("merging templates", self._report.templates.total() or None)
        order = (self._of.archive.layout, self._spool.folder, tist, not phase.dry)
        pool: Pool[list[Job], list[WrittenTemplate]] = Pool(
            "archec.gather.template_texts:writing", order, list[WrittenTemplate],
            workers=phase.workers, here=writing(*order), inline=_INLINE,
        )  # fmt: skip
        with pool, open_whole(repeated) if repeated is not None else nullcontext() as listing:
            known = self._of.archive.catalogue.scan()
            if self._refused:
                refused = (ObiState(obi, 0, state or None, None) for obi, state in sorted(self._refused.items()))
                known = _overlaid(known, refused)
            for chunk in batched(merge.cases(self._spool.found(left_out, listing), known), _CHUNK):
                self._of.meter.at(merge.distinct)
                jobs = self._decide(chunk, merge)
                if jobs:
                    pool.submit(jobs, sum(job.size + _JOB_WEIGHT for job in jobs))
                self._take(pool.results(at_most=_AHEAD * phase.workers))
            self._take(pool.results(at_most=0))
        self._spool.add_losses(self._losses)
        self._committer.commit()
        if pool.lost:
            sweep_parts(self._of.archive.layout, {tist})  # temporary files of dead workers
        self._report.duplicates = merge.duplicates
        self._report.tobis["same"] += merge.same
        self._report.not_judged.update(merge.unknown)
        return merge.held

    def _decide(self, cases: Sequence[Case], merge: Merge) -> list[Job]:
        """Commits the cases that need no writing; returns the others as jobs, which are committed when written."""
        known = self._obis([case.id for case in cases if case.known])
        jobs: list[Job] = []
        tist = self._data_set.tist
        for obi in known.values():
            if (obi.since > tist or obi.id in self._refused) and obi.history.at(tist) is not None:
                merge.held.directories[directory_of(self._place_before(obi))] += 1
        for case in cases:
            obi = known.get(case.id) or Obi(case.id, "tobi")
            row = case.row
            if self._newest and self._refused.get(case.id) == (row.sha256 if row is not None else ""):
                self._report.tobis["same"] += row is not None  # as the journals have it
            elif row is None:
                self._absent(obi, merge)
            elif (job := self._present(obi, row)) is not None:
                jobs.append(job)
        return jobs

    def _obis(self, ids: Collection[str]) -> dict[str, Obi]:
        """Those of the tobis that are known; tobis that the database refuses are read from the journals."""
        known = self._of.archive.catalogue.obis("tobi", ids)
        if refused := [obi for obi in ids if obi in self._refused]:
            if self._journalled is None:
                self._journalled = tobis_in_journals(self._of.archive.layout, self._refused)
            known.update((obi, self._journalled[obi]) for obi in refused if obi in self._journalled)
        return known

    def _present(self, obi: Obi, row: SeenRow) -> Job | None:
        """Handles a template of the data set: returns a job if it must be written, otherwise commits it."""
        data_set, tist, sha256 = self._data_set, self._data_set.tist, row.sha256
        new = Claim(tist, data_set.run, sha256, row.place, row.line, row.encoding, malformed=row.own < 2)
        added = said(obi.claims, self._evidence, data_set, new)
        held = {claim.bytes_at for claim in obi.claims if claim.state == sha256}
        writes = bool(added) and tist not in held and not (held and obi.history.at(tist) == sha256)
        if added and not writes and tist not in held:
            added[0] = msgspec.structs.replace(new, at=max(held))
        judgement = self._judged(obi, added)
        self._compare(obi, judgement, row)
        if writes:
            self._waiting[obi.id] = obi, added, judgement, row
            if not row.spool and self._phase.memory is not None:
                row = self._phase.memory.reread(row, self._spool.folder)
            path = row.path.decode("utf-8", "surrogateescape")
            before = _bytes_before(obi, judgement, tist)
            return Job(obi.id, path, row.line, row.spool, row.start, row.size, before)
        kinds = {tist: _kind(judgement, tist, "changed")}
        self._commit(obi, concluded(obi, added, judgement, self._report.run, kinds=kinds), judgement, row)
        return None

    def _take(self, results: Iterator[Done[list[Job], list[WrittenTemplate]]]) -> None:
        """Commits the templates that were written."""
        tist = self._data_set.tist
        for done in results:
            for written in done.result(WORKER_HINT):
                obi, added, judgement, row = self._waiting.pop(written.id)
                for problem in written.problems:
                    self._report.problem(problem)
                self._report.stored_bytes += written.version.size
                item = concluded(
                    obi, added, judgement, self._report.run, kinds={tist: _kind(judgement, tist, written.how)},
                    handle=row.handle, version=written.version,
                    placement=Placement(written.temp, tist, written.id, written.version.sha256),
                )  # fmt: skip
                self._commit(obi, item, judgement, row)

    def _commit(self, obi: Obi, item: CommitItem | None, judgement: Judgement, row: SeenRow) -> None:
        tist = self._data_set.tist
        record = item.record if item is not None else None
        kind = "same"
        if isinstance(record, ObiChange):
            note = record.notes.get(tist)
            if note is not None and record.put[tist] is not None:
                kind = note.kind
            elif record.claims and tist not in judgement.whys and row.place != self._place_before(obi):
                kind = "moved"
        if judgement.history.at(tist) != row.sha256:
            kind = "withheld"
        self._report.tobis[kind] += 1
        if item is not None:
            self._committer.add(item)

    def _compare(self, obi: Obi, judgement: Judgement, row: SeenRow) -> None:
        """Reports a conflict with another data set of the same date."""
        if not self._same_date or not self._evidence.speaks(self._data_set):
            return
        for other in self._same_date:
            claim = claim_of(judgement.every, other, self._evidence.look(other))
            if claim is not None and claim.state != row.sha256 and self._evidence.speaks(other):
                self._report.conflicts += 1
                path = row.path.decode("utf-8", "backslashreplace")
                message = f"{obi.id}: the data set {other.name} of this date has another version; both are kept"
                self._report.problem(Problem(path, row.line, "conflict", message))
                return

    # -- absent templates ------------------------------------------------------------------------

    def _absent(self, obi: Obi, merge: Merge) -> None:
        """Handles a tobi that is not in the data set; its loss is spooled."""
        tist = self._data_set.tist
        added = said(obi.claims, self._evidence, self._data_set, None)
        judgement = self._judged(obi, added)
        place = self._place_before(obi)
        if obi.history.at(tist) is not None and judgement.history.at(tist) is None:
            self._losses.append(Loss(archive_of(obi.id), directory_of(place), obi.id))
            if len(self._losses) >= _BATCH:
                self._spool.add_losses(self._losses)
                self._losses = []
            return
        why = judgement.whys.get(tist)
        if why is not None:
            merge.not_judged(obi.id, place, why)
        item = concluded(obi, added, judgement, self._report.run)
        if item is not None:
            self._committer.add(item)

    def losses(self, held: HeldCounts, kept: KeyedSet) -> tuple[HeldBack, list[KeyedSet]]:
        """Commits the losses that are not held back. Returns the others, and the lists of their ids."""
        config, accepted, run = self._of.archive.config, self._of.options.accept, self._data_set.run
        archives, directories = groups_to_hold_back(config, self._spool.losses(), held)
        back = (
            (group, loss.id)
            for loss in self._spool.losses()
            if (group := group_of(loss, archives, directories, accepted))
        )
        record, lists = held_back_record(run, back if archives or directories else ())
        self._report.held_back = {group: item.losses for group, item in record.groups.items()}
        self._report.tobis["held_back"] = sum(self._report.held_back.values())
        self._evidence = self._evidence.with_data_set(self._data_set, (kept, *lists), record)
        for batch in batched((loss.id for loss in self._spool.losses()), _BATCH):
            for obi in self._obis(batch).values():
                added = said(obi.claims, self._evidence, self._data_set, None)
                judgement = judged(obi.id, merged(obi.claims, added), self._evidence)
                self._report.tobis["lost"] += judgement.history.at(self._data_set.tist) is None
                item = concluded(obi, added, judgement, self._report.run)
                if item is not None:
                    self._committer.add(item)
        return record, lists

    def _judged(self, obi: Obi, added: Sequence[Claim]) -> Judgement:
        """The judgement that follows from the claims. If the data set is the newest, earlier conclusions still hold."""
        claims = merged(obi.claims, added)
        if not self._newest:
            return judged(obi.id, claims, self._evidence)
        history, tist = obi.history, self._data_set.tist
        before = Verdict(history.states[-1] if history else None, obi.place)
        after = verdict_after(obi.id, before, claims, self._evidence, (self._data_set,))
        if after.state != before.state:
            history = history.changed({tist: after.state})
        behind = {tist: after.claim} if after.claim is not None else {}
        since = tist if (after.state, after.place) != (before.state, before.place) else obi.settled
        whys = {tist: after.why} if after.why is not None else {}
        return Judgement(history, behind, whys, after, since, claims)

    def _place_before(self, obi: Obi) -> str:
        """The place at which a tobi was last seen before the data set."""
        before = () if self._newest else obi.claims
        seen = [claim.place for claim in before if claim.key < self._data_set.key and claim.place]
        return seen[-1] if seen else obi.place


def _history_of(state: ObiState) -> History:
    """The full history for a row of the scan."""
    if state.h is None:
        return History((state.last,), (state.state,))
    return history_of(state.h, state.id)


def _overlaid(states: Iterable[ObiState], others: Iterable[ObiState]) -> Iterator[ObiState]:
    """Merges two streams by id; if both have an id, the state in the second counts."""
    for _, same in groupby(heapq.merge(states, others, key=_id), _id):
        *_, last = same
        yield last


def _bytes_before(obi: Obi, judgement: Judgement, tist: int) -> int | None:
    """The tist under which the bytes held before ``tist`` are stored; None if nothing was held."""
    before = judgement.history.entry_at(tist - 1)
    if before is None or before[1] is None:
        return None
    when = before[0]
    return judgement.claims[when].bytes_at if when in judgement.claims else obi.bytes_at(when)


def _kind(judgement: Judgement, tist: int, difference: str) -> str:
    """The kind of an entry at ``tist``, given how its contents differ from those before it."""
    before = judgement.history.entry_at(tist - 1)
    if before is None:
        return "new"
    return "returned" if before[1] is None else difference
