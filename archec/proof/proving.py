"""Proofs that something was recorded before a seal, and that one seal extends another. Both can be checked without the
archive.

An inclusion proof has the form of c2sp.org/tlog-proof; its ``extra`` is the journal's line. A consistency proof is a
JSON object.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from archec.catalogue.journal_lines import ObiChange, decode
from archec.catalogue.model import Obi
from archec.errors import CorruptArchive, NotHeld
from archec.progress import Meter
from archec.proof.journal_tree import chain
from archec.proof.merkle import (
    Range,
    RangeRoots,
    Tree,
    consistency_ranges,
    extends,
    includes,
    inclusion_ranges,
    leaf_hash,
)
from archec.proof.note import from_base64, hash_from
from archec.proof.seal_file import Seal, SealFile, parse_seal
from archec.store.layout import Layout
from archec.tist import iso

INCLUSION = "c2sp.org/tlog-proof@v1"
CONSISTENCY = "archec-consistency@v1"
_INDEX = re.compile(r"index (0|[1-9][0-9]{0,17})")


class Inclusion(NamedTuple):
    """A proof that a journal's line is among those that were sealed; ``index`` counts all lines of all journals."""

    line: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed
    hashes: tuple[bytes, ...]
    sealed: SealFile

    def __str__(self) -> str:
        hashes = "".join(f"{base64.b64encode(one).decode()}\n" for one in self.hashes)
        line = base64.b64encode(self.line).decode()
        return f"{INCLUSION}\nextra {line}\nindex {self.index}\n{hashes}\n{self.sealed.note}"

    @property
    def holds(self) -> bool:
        """Whether the hashes prove it; signatures are not checked."""
        seal = self.sealed.seal
        return includes(self.index, seal.size, leaf_hash(self.line), self.hashes, seal.root)

    @property
    def change(self) -> ObiChange:
        """The record in the line. Raises :class:`CorruptArchive` if it is not about an obi."""
        record = decode(self.line, "the line that is proved")
        if not isinstance(record, ObiChange):
            raise CorruptArchive("the proved line is not about an obi")
        return record


class Consistency(NamedTuple):
    """A proof that the lines sealed by ``old`` are the beginning of those sealed by ``new``."""

    hashes: tuple[bytes, ...]
    old: SealFile
    new: SealFile

    def __str__(self) -> str:
        value = {
            "format": CONSISTENCY,
            "hashes": [base64.b64encode(one).decode() for one in self.hashes],
            "old": str(self.old.note),
            "new": str(self.new.note),
        }
        return f"{msgspec.json.encode(value).decode()}\n"

    @property
    def holds(self) -> bool:
        """Whether the hashes prove it; signatures are not checked."""
        old, new = self.old.seal, self.new.seal
        return extends(old.size, old.root, new.size, new.root, self.hashes)


# -- making proofs --------------------------------------------------------------------------------


def prove_entry(layout: Layout, obi: Obi, when: int, sealed: SealFile, meter: Meter) -> Inclusion:
    """Makes a proof of the line that first recorded the state of an obi at ``when``.

    Raises :class:`NotHeld` if nothing was recorded by then, or only after the seal; :class:`CorruptArchive` if
    the journals are not those that were sealed.
    """
    found = obi.history.entry_at(when)
    if found is None:
        raise NotHeld(f"{obi.id}: nothing was recorded of it {iso(when)}")
    line, index = _line_of(layout, obi, found, sealed.seal, meter)
    roots = _roots(layout, inclusion_ranges(index, sealed.seal.size), sealed.seal, meter)
    return Inclusion(line, index, roots, sealed)


def _line_of(layout: Layout, obi: Obi, state: tuple[int, str | None], seal: Seal, meter: Meter) -> tuple[bytes, int]:
    meter.phase("looking for the line", seal.size or None)
    needle, index = b'"id":' + msgspec.json.encode(obi.id), 0
    for journal, batch in chain(layout):
        for line in batch.lines:
            if index >= seal.size:
                raise NotHeld(f"{obi.id}: what was noted {iso(state[0])} was recorded after the seal was made")
            if needle in line:
                record = decode(line, f"{journal.path}, batch {batch.n}")
                ours = isinstance(record, ObiChange) and (record.kind, record.id) == (obi.kind, obi.id)
                if ours and record.put.get(state[0], "") == state[1]:  # type: ignore[union-attr]
                    return line, index
            index += 1
        meter.at(index, f"run {journal.tist}")
    raise NotHeld(f"{obi.id}: no journal records what the catalogue has {iso(state[0])}")


def prove_growth(layout: Layout, old: SealFile, new: SealFile, meter: Meter) -> Consistency:
    """Makes a proof that one seal extends another. Raises :class:`CorruptArchive` if it does not, or if that cannot be
    decided."""
    if not 0 < old.seal.size <= new.seal.size:
        swapped = "they seem to be swapped: --since is the older one" if new.seal.made <= old.seal.made else ""
        raise CorruptArchive(f"a seal of {new.seal.size} lines did not grow from one of {old.seal.size}", hint=swapped)
    roots = _roots(layout, consistency_ranges(old.seal.size, new.seal.size), new.seal, meter)
    proof = Consistency(roots, old, new)
    if not proof.holds:
        raise CorruptArchive("what the older seal states is not the beginning of what the newer one states")
    return proof


def _roots(layout: Layout, ranges: Sequence[Range], seal: Seal, meter: Meter) -> tuple[bytes, ...]:
    """The roots of ranges of lines. Raises :class:`CorruptArchive` if the lines are not those that were sealed."""
    meter.phase("hashing journals", seal.size or None)
    roots, tree = RangeRoots(ranges), Tree()
    for journal, batch in chain(layout):
        for line in batch.lines[: seal.size - tree.size]:
            leaf = leaf_hash(line)
            tree.add(leaf)
            roots.add(leaf)
        meter.at(tree.size, f"run {journal.tist}")
        if tree.size >= seal.size:
            break
    if (tree.size, tree.root) != (seal.size, seal.root):
        raise CorruptArchive(
            f"the journals are not those that were sealed {iso(seal.made)}", hint="'archec verify --seal' says more"
        )
    return tuple(roots.roots())


# -- reading proofs -------------------------------------------------------------------------------


def parse_proof(data: bytes) -> Inclusion | Consistency:
    """Parses a proof. Raises ValueError with the reason if it is invalid."""
    if data.startswith(INCLUSION.encode() + b"\n"):
        return _parse_inclusion(data)
    try:
        value: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        if value["format"] != CONSISTENCY:
            raise ValueError("it is of another format")
        hashes = tuple(hash_from(one, "hash") for one in value["hashes"])
        return Consistency(hashes, parse_seal(value["old"].encode()), parse_seal(value["new"].encode()))
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise ValueError("it is neither a proof of inclusion nor one of consistency") from error


def _parse_inclusion(data: bytes) -> Inclusion:
    head, blank, note = data.partition(b"\n\n")
    try:
        lines = head.decode("ascii").split("\n")[1:]
    except UnicodeDecodeError as error:
        raise ValueError("its head is not ASCII") from error
    if not blank or len(lines) < 2 or not lines[0].startswith("extra "):
        raise ValueError("it has no line of a journal, no index or no seal")
    index = _INDEX.fullmatch(lines[1])
    if index is None:
        raise ValueError(f"{lines[1][:80]!r} is not an index")
    line = from_base64(lines[0].removeprefix("extra "))
    if not line:
        raise ValueError("its line of a journal is not base64")
    hashes = tuple(hash_from(one, "hash") for one in lines[2:])
    return Inclusion(line, int(index[1]), hashes, parse_seal(note))
