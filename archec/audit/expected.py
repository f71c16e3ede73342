"""The expected state of an entry according to its journal line, and whether the catalogue agrees.

An audit reads every line of every journal. Patterns find the lines about held bytes, so that only these are parsed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from xxhash import xxh3_128_digest

from archec.archive.claims import judged
from archec.archive.evidence import Evidence
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange, decode
from archec.catalogue.model import Kind
from archec.errors import CorruptJournal
from archec.history import History
from archec.ids import kind_of
from archec.tist import MAX_TIST

_SIZE = re.compile(rb'"version":\{"sha256":"[0-9a-f]{64}","md5":"[0-9a-f]{32}","size":([0-9]{1,18})')
_HELD = re.compile(rb'"(?:put|kept)":\{[^}]*":"')
_OBI = b'{"type":"obi"'


class Entry(NamedTuple):
    """An obi as noted at a tist: its sha256, its size in bytes (-1: unknown), the id that its URL redirected to (empty
    if it did not), and its md5 (empty: unknown)."""

    tist: int
    id: str
    sha256: str
    size: int
    target: str
    md5: str = ""


def names_something(line: bytes) -> bool:
    """Whether a line names any held bytes. Cheap; lines that only state a loss name nothing."""
    return line.startswith(_OBI) and _HELD.search(line) is not None


class Amount(NamedTuple):
    """A number of lines that name held bytes, and the size of these bytes."""

    objects: int = 0
    bytes: int = 0

    def __add__(self, other: object) -> Amount:
        return Amount(self[0] + other[0], self[1] + other[1]) if isinstance(other, Amount) else NotImplemented

    def __sub__(self, other: Amount) -> Amount:
        """The difference, not below 0."""
        return Amount(max(0, self.objects - other.objects), max(0, self.bytes - other.bytes))


def amount_of(lines: Collection[bytes]) -> Amount:
    """The amount named by these lines, each of which names something."""
    sizes = (found[1] for line in lines if (found := _SIZE.search(line)) is not None)
    return Amount(len(lines), sum(map(int, sizes)))


def change_of(line: bytes, where: str) -> ObiChange | None:
    """What a line says about entries of an obi; None if it says nothing about any.

    Raises :class:`CorruptJournal`, with ``where`` in the message, for an invalid line.
    """
    if not (line.startswith(_OBI) and (b'"put":{"' in line or b'"kept":{' in line)):
        return None
    change = decode(line, where)
    if not isinstance(change, ObiChange):
        return None
    for tist, state in (*change.put.items(), *(change.kept or {}).items()):
        if not 0 <= tist <= MAX_TIST or (state is not None and len(state) != 64):
            raise CorruptJournal(f"{where}: not a journal line: an entry {tist}: {state!r}")
    if not change.id or (change.version is not None and change.version.size < 0):
        raise CorruptJournal(f"{where}: not a journal line: an empty id, or a negative size")
    return change


def target_of(change: ObiChange) -> str:
    """The id that the URL of an obi redirected to; empty if it did not."""
    return next((note.target for note in change.notes.values() if note.target), "")


def entries_of(change: ObiChange) -> list[Entry]:
    """The entries that must be on disk because of a change, even if they are dropped from a history later."""
    version, target = change.version, target_of(change)
    return [
        Entry(tist, change.id, state, version.size, target, version.md5)
        if version is not None and state == version.sha256
        else Entry(tist, change.id, state, -1, target)
        for tist, state in (change.put if change.kept is None else change.kept).items()
        if state is not None
    ]


def key_of(path: str) -> bytes:
    """16 bytes that identify a relative path, and therefore a (tist, id)."""
    return xxh3_128_digest(path.encode("utf-8", "surrogateescape"))


# -- the catalogue's side ---------------------------------------------------------------------------

def histories(catalogue: Catalogue, ids: Collection[str]) -> dict[str, History]:
    """The histories of those of ``ids`` that are in the catalogue."""
    by_kind: defaultdict[Kind, list[str]] = defaultdict(list)
    for obi in ids:
        by_kind[kind_of(obi)].append(obi)
    found = (obi for kind, wanted in by_kind.items() for obi in catalogue.obis(kind, wanted).values())
    return {obi.id: obi.history for obi in found if obi.history}


class Objection(NamedTuple):
    """A contradiction of the catalogue: the code of the finding, a message, and the catalogue's sha256 if it names
    another one for this very entry, else empty."""

    code: str
    message: str
    sha256: str = ""


def objection(entry: Entry, history: History) -> Objection | None:
    """How the catalogue contradicts an entry of the journals; None if it does not.

    An entry that only repeats the previous one is dropped from a history (its bytes stay), so the state as of its tist
    counts.
    """
    there = history.entry_at(entry.tist)
    if there is None:
        return Objection("catalogue-lacks", "the catalogue does not know it")
    tist, state = there
    if state == entry.sha256:
        return None
    if state is None:
        return Objection("catalogue-disagrees", f"the catalogue has it as lost from {tist} on")
    if tist != entry.tist:
        return Objection("catalogue-lacks", f"the catalogue has nothing of that tist, and at {tist} the sha256 {state}")
    return Objection("catalogue-disagrees", f"the catalogue says {state}", state)


def is_claimed(catalogue: Catalogue, evidence: Evidence, entry: Entry, *, settled: bool = True) -> bool:
    """Whether a history differs from an entry only because another claim counts, so that both are consistent.

    The histories are not ``settled`` while a run draws its conclusions, or if it was killed before: the next run
    completes them, and until then any claim may count.
    """
    obi = catalogue.obis("tobi", [entry.id]).get(entry.id)
    if obi is None or all(claim.state != entry.sha256 for claim in obi.claims):
        return False
    return not settled or judged(obi.id, obi.claims, evidence).history == obi.history
