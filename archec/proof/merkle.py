"""Merkle trees (RFC 9162, section 2.1) over a stream of leaves; their memory grows with the logarithm of its length.

A proof consists of the roots of ranges of leaves that do not overlap. The ranges follow from the sizes of the trees and
the index of the leaf, so one pass over all leaves can make any proof.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

EMPTY = hashlib.sha256(b"").digest()
"""The root of a tree without leaves."""


class Range(NamedTuple):
    """The leaves from ``first`` up to, but not including, ``end``."""

    first: int
    end: int


def leaf_hash(entry: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """A tree that grows at its right end; ``peaks`` are the roots of its perfect subtrees, largest first."""

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size, self.peaks = size, list(peaks)
        if len(self.peaks) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks, not {len(self.peaks)}")

    def add(self, leaf: bytes) -> None:
        self.size += 1
        rest = self.size
        while not rest & 1:
            leaf = node_hash(self.peaks.pop(), leaf)
            rest >>= 1
        self.peaks.append(leaf)

    @property
    def root(self) -> bytes:
        """The root of all leaves so far."""
        if not self.peaks:
            return EMPTY
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node_hash(peak, root)
        return root


def _split(size: int) -> int:
    """The largest power of two that is less than ``size``."""
    return 1 << (size - 1).bit_length() - 1


def inclusion_ranges(index: int, size: int) -> list[Range]:
    """The ranges whose roots are the inclusion proof of a leaf in a tree of ``size`` leaves, from the leaf upwards."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    ranges: list[Range] = []
    first, end = 0, size
    while end - first > 1:
        middle = first + _split(end - first)
        if index < middle:
            ranges.append(Range(middle, end))
            end = middle
        else:
            ranges.append(Range(first, middle))
            first = middle
    return ranges[::-1]


def consistency_ranges(old: int, new: int) -> list[Range]:
    """The ranges whose roots prove that a tree of ``new`` leaves begins with one of ``old``."""
    if not 0 < old <= new:
        raise ValueError(f"a tree of {new} leaves cannot be proved to begin with one of {old}")
    ranges: list[Range] = []
    first, end, whole = 0, new, True
    while end != old:
        middle = first + _split(end - first)
        if old <= middle:
            ranges.append(Range(middle, end))
            end = middle
        else:
            ranges.append(Range(first, middle))
            first, whole = middle, False
    if not whole:
        ranges.append(Range(first, end))
    return ranges[::-1]


class RangeRoots:
    """Computes the roots of ranges in one pass over all leaves."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = ranges
        self._trees = {wanted: Tree() for wanted in ranges}
        self._coming = sorted(self._trees, reverse=True)
        self._index = 0

    def add(self, leaf: bytes) -> None:
        while self._coming and self._index >= self._coming[-1].end:
            self._coming.pop()
        if self._coming and self._index >= self._coming[-1].first:
            self._trees[self._coming[-1]].add(leaf)
        self._index += 1

    def roots(self) -> list[bytes]:
        """The roots, in the order of the given ranges."""
        return [self._trees[wanted].root for wanted in self._ranges]


def includes(index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that ``leaf`` is the leaf ``index`` of the tree with this root."""
    if not 0 <= index < size:
        return False
    ranges = inclusion_ranges(index, size)
    if len(proof) != len(ranges):
        return False
    found = leaf
    for beside, node in zip(ranges, proof, strict=True):
        found = node_hash(found, node) if index < beside.first else node_hash(node, found)
    return found == root


def extends(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether a proof shows that the tree ``new`` begins with the tree ``old``."""
    if not 0 < old <= new:
        return False
    ranges = consistency_ranges(old, new)
    if len(proof) != len(ranges):
        return False
    nodes = list(zip(ranges, proof, strict=True))
    in_old = in_new = old_root
    if nodes and nodes[0][0].end == old:  # the old tree has several peaks, of which this is the last
        in_old = in_new = nodes.pop(0)[1]
    for beside, node in nodes:
        if beside.first < old:
            in_old, in_new = node_hash(node, in_old), node_hash(node, in_new)
        else:
            in_new = node_hash(in_new, node)
    return in_old == old_root and in_new == new_root
