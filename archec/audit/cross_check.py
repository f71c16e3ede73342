"""Compares journals, names on disk and catalogue with each other, in bounded memory.

Each side is passed as keys to a :class:`PartitionedDiff`. If there are differences, a second reading identifies them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from archec.audit.disk import MOST
from archec.audit.expected import Entry, change_of, histories, key_of, objection, target_of
from archec.audit.findings import Finding, Reporter, about
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import KINDS
from archec.closing import Closing
from archec.errors import CorruptArchive, CorruptJournal, NotHeld, StorageFailed, storage_errors
from archec.history import History
from archec.ids import slash_variant
from archec.store.journal import read_batches
from archec.store.layout import Layout, journals
from archec.store.reader import locate

KEY = 16
_PARTS = 256
_IN_MEMORY = 64 << 20


class PartitionedDiff(Closing):
    """Compares streams that are too large for memory, in 256 parts. Must be closed.

    Each side consists of records of one width that begin with a 16-byte key (:func:`archec.audit.expected.key_of`).
    They are divided by the first byte of their key, so that records with the same key are in the same part, in any
    order. Beyond about 64 MB the parts are in files of the folder that ``scratch`` opens then. ``widths`` are the
    record sizes of each side.
    """

    def __init__(
        self,
        scratch: Callable[[], AbstractContextManager[Path]],
        widths: Sequence[int],
        *,
        in_memory: int = _IN_MEMORY,
    ) -> None:
        self._scratch, self._widths, self._in_memory = scratch, tuple(widths), in_memory
        self._parts = [[bytearray() for _ in range(_PARTS)] for _ in widths]
        self._size = 0
        self._stack = ExitStack()
        self._folder: Path | None = None

    def add(self, side: int, records: bytes) -> None:
        """Adds records of a side, concatenated in ``records``."""
        width, parts = self._widths[side], self._parts[side]
        for start in range(0, len(records), width):
            parts[records[start]] += records[start : start + width]
        self._size += len(records)
        if self._size >= self._in_memory:
            self._spill()

    def parts(self) -> Iterator[tuple[list[bytes], ...]]:
        """For each part the records of every side, in the order in which they were added."""
        for number in range(_PARTS):
            yield tuple(self._records(side, number) for side in range(len(self._widths)))

    def unmatched(self) -> tuple[tuple[set[bytes], ...], int]:
        """The keys that only one of two sides has, per side, up to :data:`MOST` each; and the number of other ones."""
        found, more = (set[bytes](), set[bytes]()), 0
        for first, second in self.parts():
            for keys, only in zip(found, (set(first) - set(second), set(second) - set(first)), strict=True):
                more += add_some(keys, only)
        return found, more

    def _records(self, side: int, number: int) -> list[bytes]:
        records, width = bytes(self._parts[side][number]), self._widths[side]
        if self._folder is not None:
            path = self._folder / f"{side}-{number:02x}"
            with storage_errors(path):
                records = path.read_bytes() + records if path.exists() else records
        return [records[start : start + width] for start in range(0, len(records), width)]

    def _spill(self) -> None:
        self._folder = self._folder or self._stack.enter_context(self._scratch())
        with storage_errors(self._folder):
            for side, parts in enumerate(self._parts):
                for number, part in enumerate(parts):
                    if part:
                        with open(self._folder / f"{side}-{number:02x}", "ab") as file:
                            file.write(part)
                        part.clear()
        self._size = 0

    def close(self) -> None:
        self._stack.close()


def add_some(found: set[bytes], keys: set[bytes]) -> int:
    """Adds keys to those found, of which there are :data:`MOST` at most. Returns the number of those left out."""
    room = MOST - len(found)
    found.update(islice(keys, room))
    return max(0, len(keys) - room)


_JOURNALS, _DISK, _CATALOGUE = 0, 1, 2
_NAME, _LINK, _IMPLIED, _STATE, _DROPPED = 1, 2, 4, 8, 16
"""Flags of a path in the journals: it has bytes; it is a link to them; it needs no name; it is an entry of a history;
it was dropped from a history."""
_LOST = bytes(32)
_AS_LINK, _AS_FILE = b"l", b"f"


@dataclass(slots=True)
class Differences:
    """Keys of differences, up to a limit per kind, and the number of further ones. ``exchanged`` are links instead of
    files, and files instead of links. ``present`` is the number of names in the journals that exist."""

    missing: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)
    twice: set[bytes] = field(default_factory=set)
    catalogue: set[bytes] = field(default_factory=set)
    exchanged: set[bytes] = field(default_factory=set)
    present: int = 0
    more: int = 0

    def add(self, kind: set[bytes], keys: set[bytes]) -> None:
        """Adds to one of the sets, up to the limit."""
        self.more += add_some(kind, keys)


class Comparison(Closing):
    """Receives the three sides one after the other, then returns their differences. Must be closed."""

    def __init__(self, layout: Layout, scratch: Callable[[], AbstractContextManager[Path]]) -> None:
        self._layout = layout
        self._diff = PartitionedDiff(scratch, (KEY + 1 + 32, KEY + 1, KEY + 32))

    # -- the sides --------------------------------------------------------------------------------

    def journalled(self, record: ObiChange, *, followed: bool) -> None:
        """Adds an entry of a journal, which the catalogue has ``followed`` or not. Raises ValueError for invalid
        values."""
        layout = self._layout
        target = target_of(record)
        records: list[bytes] = []

        def add(tist: int, flags: int, state: str | None = None) -> None:
            records.extend((key_of(layout.path(tist, record.id)), bytes([flags]), _sha256(state)))

        for tist in record.drop if followed else ():
            add(tist, _DROPPED)
        for tist, state in record.put.items():
            flags = _STATE if followed else 0
            if state is not None and (record.kept is None or tist in record.kept):
                implied = bool(target) and target == slash_variant(record.id)
                if implied and self._found_by_variant(tist, record.id):
                    flags |= _IMPLIED
                else:
                    flags |= _NAME | (_LINK if target and not implied else 0)
            add(tist, flags, state)
        for tist, kept in (record.kept or {}).items():
            if record.put.get(tist) != kept:
                add(tist, _NAME, kept)
        if records:
            self._diff.add(_JOURNALS, b"".join(records))

    def _found_by_variant(self, tist: int, obi: str) -> bool:
        """Whether a redirect that only changes the final slash, and so needs no name of its own, leads to something."""
        try:
            locate(self._layout, tist, obi)
        except (NotHeld, CorruptArchive):
            return False
        except StorageFailed:
            return True  # unknown: the walk reports what cannot be read
        return True

    def on_disk(self, path: str, *, link: bool) -> None:
        """Adds a name of the store, and whether it is a link."""
        self._diff.add(_DISK, key_of(path) + (_AS_LINK if link else _AS_FILE))

    def catalogued(self, obi: str, history: History) -> None:
        """Adds an entry of the catalogue. Raises ValueError for invalid values."""
        paths = (key_of(self._layout.path(tist, obi)) + _sha256(state) for tist, state in history)
        self._diff.add(_CATALOGUE, b"".join(paths))

    # -- results -------------------------------------------------------------------------

    def differences(self, *, with_catalogue: bool) -> Differences:
        found = Differences()
        for journalled, there, catalogued in self._diff.parts():
            held, implied, history, twice, links = self._replayed(journalled)
            names = {record[:KEY] for record in there}
            linked = {record[:KEY] for record in there if record[KEY:] == _AS_LINK}
            present = held.keys() & names
            found.present += len(present)
            found.add(found.exchanged, present & (linked ^ links))
            found.add(found.twice, twice)
            found.add(found.missing, held.keys() - names)
            found.add(found.unknown, names - held.keys() - implied)
            if with_catalogue:
                theirs = {record[:KEY]: record[KEY:] for record in catalogued}
                found.add(found.catalogue, {key for key, _ in theirs.items() ^ history.items()})
        return found

    def _replayed(
        self, records: list[bytes]
    ) -> tuple[dict[bytes, bytes], set[bytes], dict[bytes, bytes], set[bytes], set[bytes]]:
        """The final statements of the journals: sha256s by path, paths that need no name, states, contradictions,
        links."""
        held: dict[bytes, bytes] = {}
        history: dict[bytes, bytes] = {}
        implied: set[bytes] = set()
        twice: set[bytes] = set()
        links: set[bytes] = set()
        for record in records:
            key, flags, sha256 = record[:KEY], record[KEY], record[KEY + 1 :]
            if flags & _DROPPED:
                history.pop(key, None)
            if flags & _STATE:
                history[key] = sha256
            if flags & _IMPLIED:
                implied.add(key)
            if flags & _LINK:
                links.add(key)
            if flags & _NAME and held.setdefault(key, sha256) != sha256:
                twice.add(key)
        return held, implied, history, twice, links

    def close(self) -> None:
        self._diff.close()


def report_differences(
    layout: Layout, catalogue: Catalogue | None, found: Differences, report: Reporter, unlisted: Collection[str] = ()
) -> None:
    """Reads the journals again, and the catalogue if needed, to identify differences. Files in ``unlisted`` directories
    are not reported as missing."""
    hidden = tuple(f"{directory}/" if directory else "" for directory in unlisted)
    missing, twice, differing, exchanged = map(set, (found.missing, found.twice, found.catalogue, found.exchanged))
    if missing or twice or differing or exchanged:
        for entry, state in _read_again(layout):
            path = layout.path(entry.tist, entry.id)
            key = key_of(path)
            if key in missing and state is not None:
                missing.discard(key)
                if not path.startswith(hidden):
                    report(about("missing", entry, path, "is not there"))
            if key in exchanged:
                exchanged.discard(key)
                what = "a file, where the URL redirected" if entry.target else "a link, where the bytes should be"
                report(about("exchanged", entry, path, what))
            if key in twice and state is not None:
                message = f"a journal says {entry.sha256}, and another line something else"
                report(about("two-contents", entry, path, message))
            if key in differing and catalogue is not None:
                differing.discard(key)
                report(_disagreement(catalogue, entry, state, path))
    if differing and catalogue is not None:
        for obi in (obi for kind in KINDS for obi in catalogue.all(kind)):
            for tist, state in obi.history:
                path = layout.path(tist, obi.id)
                if key_of(path) in differing:
                    message = f"the catalogue says {state or 'that it was lost then'}"
                    report(Finding("journal-lacks", path, message, tist, obi.id, state or ""))


def _read_again(layout: Layout) -> Iterator[tuple[Entry, str | None]]:
    for journal in journals(layout):
        with suppress(CorruptJournal):
            for batch in read_batches(journal.path):
                for line in batch.lines:
                    with suppress(CorruptJournal):
                        change = change_of(line, journal.path.name)
                        if change is not None:
                            for tist, state in {**change.put, **(change.kept or {})}.items():
                                yield Entry(tist, change.id, state or "", -1, target_of(change)), state


def _disagreement(catalogue: Catalogue, entry: Entry, state: str | None, path: str) -> Finding:
    history = histories(catalogue, [entry.id]).get(entry.id, History())
    if state is None:
        there = history.entry_at(entry.tist)
        says = "does not know of it" if there is None else f"says {there[1] or 'lost'} from {there[0]} on"
        message = f"the journals say that it was lost then; the catalogue {says}"
        return about("catalogue-disagrees", entry, path, message)
    theirs = objection(entry, history)
    if theirs is None:
        return about("catalogue-disagrees", entry, path, "the catalogue has no such entry, or one that was dropped")
    return about(theirs.code, entry, path, theirs.message)


def _sha256(state: str | None) -> bytes:
    sha256 = bytes.fromhex(state) if state is not None else _LOST
    if len(sha256) != 32:
        raise ValueError(f"{state!r} is not a sha256")
    return sha256
