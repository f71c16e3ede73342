"""Retraction of visits: derives the histories of files without the visits of some runs.

The catalogue has only the last visit to each file, so the journals are read again. The history is a function of the
visits that count: it does not depend on the order in which runs were retracted, and is restored when a retraction is
undone. The same holds for the records of hosts, for losses held back, and for due dates. Bytes stay where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from archec.archive.commit import CommitItem, Commits
from archec.archive.file_loss import is_lost, loss_note, loss_of
from archec.archive.held_back import files_of, held_back_record, journalled
from archec.archive.journal_records import records
from archec.archive.opening import Archive
from archec.catalogue.journal_lines import HostNoted, LossesHeldBack, ObiChange, RunStart, decode, encode, fold_obi
from archec.catalogue.model import AT_ONCE, HeldBack, HostState, Note, Obi, Version, Visit
from archec.config import Config
from archec.errors import storage_errors
from archec.store.layout import JournalFile, journal_of, journals
from archec.store.sorting import SortedLines
from archec.tist import MAX_TIST

_CONCLUDED = b"r"
_BUCKETS = 1 << 24

_Other = HostNoted | LossesHeldBack
"""The records of a run other than its visits."""


class Withdrawn(NamedTuple):
    """The result of a retraction of visits: the numbers of files that are due immediately, and whose history
    changed."""

    due: int
    changed: int


class _SeenVisit(NamedTuple):
    """A visit, the state that it saw (None if it saw none), and whether it counts as failed."""

    visit: Visit
    state: str | None
    failed: bool


class _Loss(NamedTuple):
    """A loss: the tists of the first and the last visit that found the file gone, and its note. Its tist is the
    first."""

    since: int
    until: int
    note: Note


class _Facts:
    """Everything in the journals about one file, including what does not count."""

    def __init__(self, changes: Iterable[tuple[ObiChange, bool]]) -> None:
        self.obi: Obi | None = None
        self.due = 0
        self.seen: dict[int, _SeenVisit] = {}
        self.losses: list[_Loss] = []
        self._noted: dict[int, tuple[str, Note]] = {}
        self.versions: dict[str, Version] = {}
        for change, concluded in changes:
            before: Obi | None = self.obi
            self.obi = fold_obi(before, change, 0)
            if change.version is not None:
                self.versions[change.version.sha256] = change.version
            if concluded:
                continue
            if change.visit is not None:
                self.due = change.due
                fails = before.visit.fails if before is not None and before.visit is not None else 0
                visit, tist = change.visit, change.visit.tist
                seen = self.obi.history.at(tist) if visit.checked == tist else None
                self.seen[tist] = _SeenVisit(visit, seen, visit.fails > fails)
            for tist, state in change.put.items():
                if state is not None:
                    self._noted[tist] = state, change.notes[tist]
                elif before is not None and before.visit is not None:
                    self.losses.append(_Loss(tist, before.visit.tist, change.notes[tist]))

    def note(self, tist: int, state: str, before: str | None, *, first: bool) -> Note:
        """The note for an entry: that of the visit, or of the visit that received these bytes."""
        noted, note = self._noted.get(tist, ("", Note(tist, "")))
        if noted != state:
            at, note = max((when, own) for when, (there, own) in self._noted.items() if there == state and when < tist)
            note = replace(note, run=tist, kind="", at=note.at or at)
        if before is None:
            return replace(note, kind="new" if first else "returned")
        return note if note.kind not in ("", "new", "returned") else replace(note, kind="changed")


def visits_files(archive: Archive, run: int) -> bool:
    """Whether the journal of a run has a visit to a file."""
    journal = journal_of(archive.layout, run)
    found = _relevant_records(journal) if journal is not None else ()
    return any(isinstance(record, ObiChange) and record.visit is not None for record, _ in found)


def conclude_without(archive: Archive, run: int, to: Commits) -> Withdrawn:
    """Derives again, from the visits of the runs that are not retracted: the histories of the files that ``run``
    visited, the records of its hosts, and the losses held back. Files whose last visit does not count become due
    immediately."""
    out = archive.catalogue.retracted_runs()
    due = changed = 0
    work = archive.work
    with storage_errors(work):
        work.mkdir(parents=True, exist_ok=True)
    with SortedLines(work) as lines:
        others = _collect(archive, run, out, lines)
        for _, group in groupby(lines, key=lambda line: line.partition(b"\0")[0]):
            facts = _Facts(map(_parsed, group))
            if run in facts.seen and facts.obi is not None:
                changes = list(_without(archive.config, facts, facts.obi, out))
                due += max(facts.seen) in out
                changed += any(change.put or change.drop for change in changes)
                for change in changes:
                    to.add(CommitItem(change))
    to.commit()
    for other in others:
        if isinstance(other, HostNoted):
            to.add(CommitItem(other))
        else:
            _hold_back(archive, other.held_back, run, to)
    to.commit()
    return Withdrawn(due, changed)


def _hold_back(archive: Archive, stated: HeldBack, run: int, to: Commits) -> None:
    """Journals which losses of a record are still held back: those confirmed by the last visit that counts."""
    catalogue = archive.catalogue
    hosts = {url: host for host, url in files_of(catalogue, stated)}
    fobis = catalogue.obis("fobi", hosts).values()
    gone = [(hosts[fobi.id], fobi.id) for fobi in fobis if loss_of(archive.config, fobi, run) is not None]
    record, lists = held_back_record(stated.run, gone, "fobi")
    now = next((item for item in catalogue.held_back() if (item.run, item.kind) == (stated.run, "fobi")), None)
    if record.groups != (now.groups if now is not None else {}):
        for line in journalled(catalogue, record, lists):
            to.add(CommitItem(line))


def _collect(archive: Archive, run: int, out: Collection[int], to: SortedLines) -> list[_Other]:
    """Adds the records about the files that the run visited (and some others, whose hashes collide) to ``to``,
    which sorts them by id, then in the order of the journals. Returns the records of the run's hosts, taken from the
    runs that count and with failures counted over these, and all records of losses held back."""
    files = journals(archive.layout)
    wanted = bytearray(_BUCKETS)
    others: dict[str | int, _Other] = {}
    stated: dict[str, int] = {}
    for journal in files:
        if journal.tist == run:
            for record, _ in _relevant_records(journal):
                if isinstance(record, ObiChange):
                    wanted[_bucket(record.id)] = 1
                elif isinstance(record, HostNoted):
                    others[record.host.host] = HostNoted(HostState(record.host.host, run))
    number = 0
    for journal in files:
        for record, concluded in _relevant_records(journal):
            if isinstance(record, ObiChange):
                number += 1
                if wanted[_bucket(record.id)]:
                    mark = _CONCLUDED if concluded else b" "
                    to.add(b"%s\0%015d%s%s" % (record.id.encode(), number, mark, encode(record)))
                continue
            counts = journal.tist not in out and not concluded
            if isinstance(record, HostNoted):
                host, before = record.host, others.get(record.host.host)
                change, stated[host.host] = host.fails - stated.get(host.host, 0), host.fails
                if counts and isinstance(before, HostNoted):
                    fails = 0 if change < 0 else before.host.fails + (change > 0)
                    others[host.host] = HostNoted(replace(host, fails=fails))
            elif record.held_back.kind == "fobi":
                of = record.held_back.run
                none = LossesHeldBack(HeldBack(of, "fobi"))
                others[of] = record if counts and of not in out else others.get(of, none)
    return list(others.values())


def _relevant_records(journal: JournalFile) -> Iterator[tuple[ObiChange | _Other, bool]]:
    """Yields the records of a journal about files, hosts and losses held back, each with whether it is a conclusion of
    a retraction."""
    concluded = False
    found: Iterator[RunStart | ObiChange | _Other] = records(
        journal.path, RunStart, ObiChange, HostNoted, LossesHeldBack, obis="fobi"
    )
    for record in found:
        if isinstance(record, RunStart):
            concluded = record.kind == "retract"
        else:
            yield record, concluded


def _parsed(line: bytes) -> tuple[ObiChange, bool]:
    rest = line.partition(b"\0")[2]
    change = decode(rest[16:])
    if not isinstance(change, ObiChange):
        raise TypeError(f"not of a file: {change!r}")
    return change, rest[15:16] == _CONCLUDED


def _bucket(obi: str) -> int:
    return xxh3_64_intdigest(obi.encode()) % _BUCKETS


def _without(config: Config, facts: _Facts, obi: Obi, out: Collection[int]) -> Iterator[ObiChange]:
    """Yields the records that give an obi its state without the visits of the runs ``out``; none if it has that."""
    visits = _counting(facts, out)
    entries, notes = _history(config, facts, visits, out)
    none = Visit(max(facts.seen), "doubtful", message="the visits of this run were retracted")
    visit = visits[-1] if visits else none
    history = obi.history.as_dict()
    put = {
        tist: state for tist, state in entries.items()
        if history.get(tist, "") != state or obi.notes.get(tist) != notes[tist]
    }  # fmt: skip
    drop = tuple(tist for tist in history if tist not in entries)
    due = AT_ONCE if max(facts.seen) in out and obi.due <= MAX_TIST else facts.due
    if not put and not drop and (visit, due) == (obi.visit, obi.due):
        return
    change = ObiChange(
        "fobi", obi.id, put=put, drop=drop, notes={tist: notes[tist] for tist in put}, visit=visit, due=due,
        kept={} if put else None,
    )  # fmt: skip
    new = [facts.versions[state] for state in sorted({*filter(None, put.values())}) if state not in obi.versions]
    yield replace(change, version=new[0]) if new else change
    for version in new[1:]:
        yield replace(change, version=version)


def _history(
    config: Config, facts: _Facts, visits: Sequence[Visit], out: Collection[int]
) -> tuple[dict[int, str | None], dict[int, Note]]:
    """Returns the entries that follow from the visits that count, and their notes.

    A loss stays if all visits that found the file gone count, and no visit that counts saw contents in between.
    Otherwise it is noted by the first later visit that confirms it together with others that count; if there is none,
    the next visit decides.
    """
    seen = {tist: one.state for tist, one in facts.seen.items() if one.state is not None and tist not in out}
    gone = {tist for tist, one in facts.seen.items() if one.visit.outcome == "gone" and tist in out}
    losses = {
        loss.since: replace(loss.note, seen=max((tist for tist in seen if tist < loss.since), default=0))
        for loss in reversed(facts.losses)
        if not any(loss.since <= tist <= loss.until for tist in {*gone, *seen})
    }  # fmt: skip
    for visit in visits:
        if is_lost(config, visit) and any(visit.gone_since <= loss.until <= visit.tist for loss in facts.losses):
            losses.setdefault(visit.gone_since, loss_note(visit, visit.tist))
    entries: dict[int, str | None] = {}
    notes: dict[int, Note] = {}
    before: str | None = None
    for tist in sorted({*losses, *seen}):
        state = seen.get(tist)
        if state == before:
            continue
        entries[tist] = state
        notes[tist] = losses[tist] if state is None else facts.note(tist, state, before, first=len(entries) == 1)
        before = state
    return entries, notes


def _counting(facts: _Facts, out: Collection[int]) -> list[Visit]:
    """The visits that count, in order, with their counters over several visits counted again."""
    visits: list[Visit] = []
    for tist, seen in sorted(facts.seen.items()):
        if tist not in out:
            saw_nothing = seen.state is None and seen.visit.outcome != "doubtful"
            last = visits[-1] if visits else None
            visits.append(seen.visit.following(last, failed=seen.failed) if saw_nothing else seen.visit)
    return visits
