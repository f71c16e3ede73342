"""The template phase of a run: read, merge, write what is news, then decide on losses."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from archec.archive.commit import CommitItem, Commits
from archec.archive.opening import Archive
from archec.archive.report import Report
from archec.catalogue.model import Coverage, DataSet, Note, Version
from archec.catalogue.records import DataSetRead, ObiChange, RunEnd, SetAdded
from archec.gather.losses import Observations, coverage_set, covers, handle_set, hash_of, is_held_back
from archec.gather.merging import Merged, Present, merge
from archec.gather.reading import WORKER_HINT, Reading, read_data_set
from archec.gather.spool import SeenRow, Spool
from archec.gather.writing import Job, Written, writing
from archec.history import Change, History
from archec.ids import archive_of
from archec.progress import Meter
from archec.redif.items import Source
from archec.redif.problems import Problem
from archec.store.interface import HardLink, Placement
from archec.store.writer import sweep_parts
from archec.workers.pool import Done, Pool

_ABSENT = "not in its archive's directory, which was read whole"
_CHUNK = 500
_INLINE = 2 << 20
_JOB_WEIGHT = 1000
_AHEAD = 6
"""Chunks under way for each worker, at most."""
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class TemplatePhase:
    """What the phase works with. ``tist`` is the data set's; ``accept`` names archives whose losses are let through, or
    ``all``; ``complete`` says that the data set is all of RePEc; ``dry`` that nothing is stored."""

    archive: Archive
    committer: Commits
    spool: Spool
    report: Report
    meter: Meter
    tist: int
    accept: frozenset[str]
    complete: bool
    workers: int
    dry: bool = False

    def merge(self, reading: Reading, name: str) -> None:
        """Merges what was read with the catalogue; ``name`` is the data set's."""
        draft = reading.coverage(complete=self.complete)
        self.report.complete = draft.complete
        seen, held = self._merge(reading, draft)
        held_back = self._guard(held)
        self._lose(held_back)
        self._close(name, draft, held_back, seen)
        self.committer.commit()

    # -- reading ----------------------------------------------------------------------------------

    def read(self, source: Source) -> Reading:
        """Reads an open source into the spool."""
        self.meter.phase("reading templates", source.size or None)

        def progress(reading: Reading) -> None:
            self.meter.at(source.position, f"{reading.templates:,} templates")

        reading = read_data_set(
            source, self.spool, workers=self.workers,
            on_problem=self.report.problem, on_more=self.report.more_problems, on_other=self.report.other_file,
            on_progress=progress,
        )
        reading.report_to(self.report)
        return reading

    # -- merging ----------------------------------------------------------------------------------

    def _merge(self, reading: Reading, draft: Coverage) -> tuple[dict[str, array[int]], Counter[str]]:
        """Writes what is news and spools the losses; gives the seen ids that are not covered, and
        how many tobis each archive holds as of the data set's tist."""
        observations = Observations(self.archive.catalogue.data_sets(), self.archive.catalogue.keyed)
        seen: defaultdict[str, array[int]] = defaultdict(_hashes)
        held: Counter[str] = Counter()
        covered_codes = draft.covered

        def on_seen(obi: str) -> None:
            code = archive_of(obi)
            if code not in covered_codes and not covers(draft, obi):
                seen[code].append(hash_of(obi))

        merged = Merged()
        total = reading.templates
        self.meter.phase("merging templates", total or None)
        known = self.archive.catalogue.scan()
        found = self.spool.found(reading.superseded)
        losses: list[tuple[str, str]] = []
        order = (self.archive.layout, self.spool.folder, self.tist, not self.dry)
        pool: Pool[list[Job], list[Written]] = Pool(
            "archec.gather.writing:writing", order, list[Written],
            workers=self.workers, here=writing(*order), inline=_INLINE,
        )  # fmt: skip
        with pool:
            waiting: dict[str, tuple[Present, Change, SeenRow]] = {}
            news: list[Present] = []

            def write() -> None:
                jobs = self._jobs(news, observations, waiting)
                if jobs:
                    weight = sum(job.size + _JOB_WEIGHT for job in jobs)
                    pool.submit(jobs, weight)
                news.clear()

            for item in merge(
                found, known, self.tist, merged, on_seen=on_seen, on_held=lambda obi: _count(held, obi)
            ):
                if merged.distinct & 1023 == 0:
                    self.meter.at(merged.distinct)
                if isinstance(item, Present):
                    news.append(item)
                    if len(news) >= _CHUNK:
                        write()
                        self._take(pool.results(at_most=_AHEAD * self.workers), waiting)
                        self.meter.at(merged.distinct)
                elif covers(draft, item.id) and not observations.observes(item.id, self.tist):
                    losses.append((item.archive, item.id))
                    if len(losses) >= _BATCH:
                        self.spool.add_losses(losses)
                        losses = []
            write()
            self._take(pool.results(at_most=0), waiting)
        self.spool.add_losses(losses)
        self.committer.commit()
        if pool.lost:
            sweep_parts(self.archive.layout, {self.tist})  # what workers that died were writing
        self.report.duplicates = merged.duplicates
        self.report.tobis["same"] += merged.same
        return dict(seen), held

    def _jobs(
        self,
        news: Sequence[Present],
        observations: Observations,
        waiting: dict[str, tuple[Present, Change, SeenRow]],
    ) -> list[Job]:
        """What there is to write; what waits for it goes to ``waiting``."""
        rows = self.spool.rows([item.found.row for item in news])
        jobs: list[Job] = []
        for item in news:
            obi, row = item.found.id, rows[item.found.row]
            if self._conflicts(item, observations):
                self._conflict(obi, row.path.decode("utf-8", "backslashreplace"), row.line)
                continue
            change = item.history.observe(
                self.tist, item.sha256, lambda after, before, obi=obi: observations.next(obi, after, before)  # type: ignore[misc]
            )
            entry = item.history.entry_at(self.tist)
            before = entry[0] if entry is not None and entry[1] is not None else None
            waiting[obi] = (item, change, row)
            path = row.path.decode("utf-8", "surrogateescape")
            jobs.append(Job(obi, path, row.line, row.spool, row.start, row.size, before))
        return jobs

    def _conflicts(self, item: Present, observations: Observations) -> bool:
        """Whether another data set of this date is known that says something else of the tobi."""
        history = item.history
        if history.conflicts(self.tist, item.sha256):
            return True
        return history.at(self.tist) is not None and observations.observes(item.found.id, self.tist)

    def _conflict(self, obi: str, path: str, line: int) -> None:
        self.report.conflicts += 1
        self.report.problem(
            Problem(path, line, "conflict", f"{obi}: other contents are held for the data set of this date")
        )

    def _take(
        self,
        results: Iterator[Done[list[Job], list[Written]]],
        waiting: dict[str, tuple[Present, Change, SeenRow]],
    ) -> None:
        for done in results:
            for written in done.result(WORKER_HINT):
                present, change, row = waiting.pop(written.id)
                for problem in written.problems:
                    self.report.problem(problem)
                self.committer.add(self._present(present, change, row, written))

    def _present(self, item: Present, change: Change, row: SeenRow, written: Written) -> CommitItem:
        kind = _kind(item.history, self.tist, written.how)
        self.report.tobis[kind] += 1
        self.report.stored_bytes += written.size
        path = row.path.decode("utf-8", "backslashreplace")
        notes = {self.tist: Note(self.report.run, kind, path=path, line=row.line, encoding=row.encoding)}
        placement = Placement(written.temp, self.tist, written.id, written.sha256)
        return self._item(written.id, row.handle, item.history, change, notes, written.version(), placement)

    def _item(
        self,
        obi: str,
        handle: str,
        history: History,
        change: Change,
        notes: dict[int, Note],
        version: Version | None,
        placement: Placement | None,
    ) -> CommitItem:
        restated: list[HardLink] = []
        entry = history.entry_at(self.tist)
        for tist, state in change.put.items():
            if tist == self.tist:
                continue
            lost = Note(self.report.run, "lost", reason=_ABSENT)
            notes[tist] = lost if state is None else Note(self.report.run, "restated")
            if state is not None and entry is not None:
                restated.append(HardLink(entry[0], obi, tist, obi))
        if placement is not None and change.put.get(self.tist) is None:
            self.committer.discard(placement.temp)  # held at this tist by the entry before it
            placement = None
        notes = {tist: note for tist, note in notes.items() if tist in change.put}
        record = ObiChange("tobi", obi, handle, dict(change.put), change.drop, version, notes)
        return CommitItem(record, placement, (), tuple(restated), fresh=not len(history))

    # -- losses -----------------------------------------------------------------------------------

    def _guard(self, held: Counter[str]) -> frozenset[str]:
        """The archives whose losses are held back; says so in the report."""
        held_back: dict[str, int] = {}
        for code, losses in self.spool.loss_counts().items():
            accepted = "all" in self.accept or code in self.accept
            if not accepted and is_held_back(self.archive.config, losses, held[code]):
                held_back[code] = losses
        self.report.held_back = held_back
        return frozenset(held_back)

    def _lose(self, held_back: frozenset[str]) -> None:
        observations = Observations(self.archive.catalogue.data_sets(), self.archive.catalogue.keyed)
        ids = self.spool.losses(held_back)
        while batch := list(islice(ids, _BATCH)):
            tobis = self.archive.catalogue.obis("tobi", batch)
            for obi in batch:
                tobi = tobis[obi]
                change = tobi.history.observe(
                    self.tist, None, lambda after, before, obi=obi: observations.next(obi, after, before)  # type: ignore[misc]
                )
                if not change:
                    continue
                self.report.tobis["lost"] += 1
                note = Note(self.report.run, "lost", reason=_ABSENT)
                self.committer.add(
                    self._item(obi, tobi.handle, tobi.history, change, {self.tist: note}, None, None)
                )

    def _close(
        self,
        name: str,
        draft: Coverage,
        held_back: frozenset[str],
        seen: dict[str, array[int]],
    ) -> None:
        """The data set becomes known: from now on its absences count."""
        for code in held_back:
            seen[code] = _hashes(map(hash_of, self.spool.ids_of(code)))
        unread = frozenset(draft.partial)
        partial: dict[str, str] = {}
        sets = []
        for code in sorted({*unread, *seen, *held_back}):
            hashes = seen.get(code, _hashes())
            if not hashes and code not in unread and code not in held_back:
                continue
            handles = handle_set(hashes)
            partial[code] = handles.key
            sets.append(handles)
        coverage = coverage_set(
            replace(draft, covered=draft.covered - held_back, partial=partial, guarded=held_back)
        )
        for item in (*sets, coverage):
            if self.archive.catalogue.keyed(item.key) is None:
                self.committer.add(CommitItem(SetAdded.of(item)))
        record = DataSetRead(DataSet(self.tist, self.report.run, name, coverage.key))
        # In this order: a run that is known to be merged has its report.
        self.committer.add(CommitItem(RunEnd(self.report.run, "running", self.report.as_value())))
        self.committer.add(CommitItem(record))


def _hashes(numbers: Iterable[int] = ()) -> array[int]:
    """Numbers of 64 bits, at a fifth of a list's memory: a data set that breaks off may have millions."""
    return array("Q", numbers)


def _count(held: Counter[str], obi: str) -> None:
    held[archive_of(obi)] += 1


def _kind(history: History, tist: int, difference: str) -> str:
    entry = history.entry_at(tist)
    if entry is None:
        return "new"
    return "returned" if entry[1] is None else difference


