"""Compares two copies of an archive and lists their differences. For valid copies, little must be read.

The batches of all journals form a chain, so two copies with one equal batch have equal batches before it. The newest
such batch is found by comparing few journals. The files of the obi stores are then compared by name and size.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins

from archec.archive.opening import scratch_folder
from archec.audit.copies import Copy, DirectoryCopy, fetch_journal, need_journals
from archec.audit.disk import MOST
from archec.audit.expected import Entry, change_of, entries_of
from archec.catalogue.journal_lines import ChainLink
from archec.config import Config
from archec.errors import ArchecError
from archec.ids import is_url, slash_variant
from archec.progress import Meter
from archec.store.journal import JournalBatch, read_batches
from archec.store.layout import RUNS, Layout, journals

RELATIONS = {
    "equal": "They are equal.",
    "elder": "The copy is older, and this archive continues it.",
    "newer": "This archive is older, and the copy continues it.",
    "fork": "They are equal up to there, then they diverge.",
    "unrelated": "They have nothing in common: they are not copies of one archive.",
}
"""The possible relations of two copies."""


class Difference(NamedTuple):
    """One difference between the copies: ``what`` (``missing``, ``wrong-size``, ``unreadable``, ``entry``),
    ``where`` (``here``, ``copy``, or ``both``), the path or the journal, a sentence, the obi (-1 and empty if none)."""

    what: str
    where: str
    path: str
    message: str
    tist: int = -1
    id: str = ""

    def as_value(self) -> dict[str, Any]:
        value: dict[str, Any] = {"difference": self.what, "where": self.where, "path": self.path}
        if self.tist >= 0:
            value |= {"tist": self.tist, "id": self.id}
        return value | {"message": self.message}

    def __str__(self) -> str:
        return f"{self.what}: {self.path}: {self.message}"


@dataclass(slots=True)
class Rest:
    """The contents of one copy after the last common batch."""

    runs: int = 0
    batches: int = 0
    entries: int = 0


@dataclass(slots=True)
class CopyReport:
    """The relation of two copies; ``common`` is the last common batch, ``files`` the number of files compared,
    ``unlisted`` whether the copy may have later runs that cannot be seen."""

    relation: str = "equal"
    common: ChainLink | None = None
    here: Rest = field(default_factory=Rest)
    copy: Rest = field(default_factory=Rest)
    files: int = 0
    unlisted: bool = False
    seconds: float = 0.0
    differences: Counter[str] = field(default_factory=Counter)

    @property
    def sound(self) -> bool:
        """Whether one of the two continues the other, without differences before."""
        return self.relation in ("equal", "elder", "newer") and not self.differences

    def as_value(self) -> dict[str, Any]:
        differences = dict(sorted(self.differences.items()))
        changed = {"common": to_builtins(self.common), "seconds": round(self.seconds, 3), "differences": differences}
        return {"summary": "compare", "sound": self.sound, **asdict(self), **changed}


Reporter = Callable[[Difference], None]
"""Called with each difference when it is found."""


def compare(
    config: Config, layout: Layout, copy: Copy, meter: Meter, report: Reporter, *, files: bool = True
) -> CopyReport:
    """Compares an archive with a copy of it, and reports each difference when it is found; changes nothing.

    With ``files``, also compares names and sizes in the obi stores. Raises :class:`archec.errors.CorruptJournal` if a
    required journal is invalid: only valid copies can be compared.
    """
    began, result = time.monotonic(), CopyReport()

    def reported(difference: Difference) -> None:
        result.differences[difference.what] += 1
        report(difference)

    with scratch_folder(config) as scratch, DirectoryCopy(layout) as own:
        _Comparing(layout, own, copy, scratch, meter, reported, result).go(files=files)
    result.seconds = time.monotonic() - began
    return result


class _Side:
    """The journals of one copy, in the order of their runs; ``path_of`` returns the path at which one can be read."""

    def __init__(self, name: str, copy: Copy, runs: Sequence[int], path_of: Callable[[int], Path]) -> None:
        self.name, self.copy, self.runs = name, copy, runs
        self._path_of = path_of

    def batches(self, run: int) -> Iterator[JournalBatch]:
        return read_batches(self._path_of(run))

    def first(self, run: int) -> str:
        """The sha256 of the first batch of a run; empty if there is none."""
        return next((batch.sha256 for batch in self.batches(run)), "")

    def after(self, common: ChainLink | None) -> Iterator[tuple[int, JournalBatch]]:
        """The batches after the last common one, with their runs."""
        for run in self.runs:
            if common is None or run >= common.run:
                for batch in self.batches(run):
                    if common is None or (run, batch.n) > (common.run, common.batch):
                        yield run, batch


class _Comparing:
    def __init__(
        self,
        layout: Layout,
        own: Copy,
        copy: Copy,
        scratch: Path,
        meter: Meter,
        report: Reporter,
        result: CopyReport,
    ) -> None:
        self._layout, self._meter, self._report, self._result = layout, meter, report, result
        ours, theirs = {journal.tist: journal.path for journal in journals(layout)}, copy.runs()
        result.unlisted = theirs is None
        if theirs is None:
            theirs = [run for run in ours if copy.has_journal(run)]
        if ours:
            need_journals(copy, theirs)
        self._here = _Side("here", own, list(ours), ours.__getitem__)
        self._there = _Side("copy", copy, theirs, self._fetched)
        self._copy, self._scratch, self._fetched_path = copy, scratch, scratch / "none"

    def go(self, *, files: bool) -> None:
        result = self._result
        result.common = self._last_common()
        self._journals(result.common)
        self._meter.phase("reading what follows", None)
        ours, theirs = self._entries_after(self._here, result.here), self._entries_after(self._there, result.copy)
        if result.common is None and (result.here.batches or result.copy.batches):
            result.relation = "unrelated"
            return
        if result.here.batches and result.copy.batches:
            result.relation = "fork"
            self._different_entries(ours, theirs)
        elif result.here.batches or result.copy.batches:
            result.relation = "elder" if result.here.batches else "newer"
        if files and result.common is not None:
            self._files(result.common)

    # -- journals ---------------------------------------------------------------------------------

    def _fetched(self, run: int) -> Path:
        """The path of the copy's journal of a run; the last fetched one is kept until the next."""
        if self._fetched_path.name.partition(".")[0] != str(run):
            self._fetched_path.unlink(missing_ok=True)
            self._fetched_path = fetch_journal(self._copy, run, self._scratch)
        return self._fetched_path

    def _last_common(self) -> ChainLink | None:
        """Finds the last common batch: a binary search for the newest run that begins with the same batch, which tries
        the newest of all first."""
        self._meter.phase("comparing heads", None)
        both = sorted(set(self._here.runs) & set(self._there.runs))
        known, low, high, middle = 0, 0, len(both), len(both) - 1
        while low < high:  # those before low have the same first batch, those from high on do not
            self._meter.at(known, f"run {both[middle]}")
            known += 1
            first = self._here.first(both[middle])
            if first and first == self._there.first(both[middle]):
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        if not low:
            return None
        run, common = both[low - 1], None
        for ours, theirs in zip(self._here.batches(run), self._there.batches(run), strict=False):
            if ours.sha256 != theirs.sha256:
                break
            common = ChainLink(run, ours.n, ours.sha256)
        return common

    def _journals(self, common: ChainLink | None) -> None:
        """Reports journals before the last common batch that one copy lacks."""
        if common is None:
            return
        for side, other in ((self._here, self._there), (self._there, self._here)):
            for run in sorted(set(other.runs) - set(side.runs)):
                if run < common.run:
                    self._report(Difference("missing", side.name, f"{RUNS}/{run}.jsonl.gz", f"not {_in(side.name)}"))

    def _entries_after(self, side: _Side, rest: Rest) -> dict[tuple[int, str], str]:
        """Counts the contents of a copy after the last common batch; returns its entries, up to a memory limit."""
        found: dict[tuple[int, str], str] = {}
        last = -1
        for run, batch in side.after(self._result.common):
            rest.runs += run != last
            rest.batches += 1
            last = run
            for entry in _entries(batch, run):
                rest.entries += 1
                if len(found) < MOST:
                    found[entry.tist, entry.id] = entry.sha256
            self._meter.at(rest.entries, f"run {run}")
        return found

    def _different_entries(self, here: dict[tuple[int, str], str], there: dict[tuple[int, str], str]) -> None:
        for tist, obi in sorted(here.keys() | there.keys()):
            ours, theirs = here.get((tist, obi)), there.get((tist, obi))
            if ours == theirs:
                continue
            where = "copy" if ours is None else "here" if theirs is None else "both"
            says = {"copy": f"only the copy has it: {theirs}", "here": f"only this archive has it: {ours}"}
            message = says.get(where, f"{ours} here, {theirs} in the copy")
            self._report(Difference("entry", where, self._layout.path(tist, obi), message, tist, obi))

    # -- files ------------------------------------------------------------------------------------

    def _files(self, common: ChainLink) -> None:
        """Looks up everything that the common journals name in both copies."""
        self._meter.phase("comparing files", None)
        for run in self._here.runs:
            if run > common.run:
                return
            for batch in self._here.batches(run):
                if (run, batch.n) > (common.run, common.batch):
                    return
                for entry in _entries(batch, run):
                    self._look(entry)
                    self._result.files += 1
                self._meter.at(self._result.files, f"run {run}")

    def _look(self, entry: Entry) -> None:
        sizes: list[int | None] = []
        for side in (self._here, self._there):
            try:
                sizes.append(side.copy.size(entry.tist, entry.id))
            except ArchecError as error:
                self._differs("unreadable", side.name, entry, error.message)
                sizes.append(entry.size)
        if sizes == [None, None] and is_url(entry.id) and entry.target == slash_variant(entry.id):
            return  # the name of a redirect that only changes the final slash exists only if its target does
        wanted = entry.size if entry.size >= 0 else next((size for size in sizes if size not in (None, -1)), None)
        for side, size in zip((self._here, self._there), sizes, strict=True):
            if size is None:
                self._differs("missing", side.name, entry, f"not {_in(side.name)}")
            elif size not in (wanted, -1):
                self._differs("wrong-size", side.name, entry, f"{size} bytes {_in(side.name)}, not {wanted}")

    def _differs(self, what: str, where: str, entry: Entry, message: str) -> None:
        path = self._layout.path(entry.tist, entry.id)
        self._report(Difference(what, where, path, message, entry.tist, entry.id))


def _entries(batch: JournalBatch, run: int) -> Iterator[Entry]:
    for line in batch.lines:
        change = change_of(line, f"run {run}, batch {batch.n}")
        if change is not None:
            yield from entries_of(change)


def _in(name: str) -> str:
    return "in this archive" if name == "here" else "in the copy"
