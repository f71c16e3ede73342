"""Ranges of keys in the obi store: all files below a URL, of a host or of a domain, or all templates of an archive.

Ids do not sort like keys. They are read host by host (templates: archive by archive) in the order of the keys, so that
only the ids of one host have to be sorted before its rows are returned.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from archec.access.index_files import SortedFile
from archec.access.query import Query, uri_of
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Kind, Obi, Position
from archec.ids import kind_of
from archec.store.sorting import SortedLines as Sorter
from archec.urlkey import fileset_in, handle_in, target_uri, urlkey

_BATCH = 100
"""Number of obis per look-up."""
_SCHEMES = ("ftp", "http", "https")
_WWW = re.compile(r"www[0-9]*\.")
"""The prefix of a host that its key leaves out."""
_NUMBERED = re.compile(r"www[0-9]+")
_MAX_NUMBERED = 1000
_LAST = "\U0010ffff"


class Group(NamedTuple):
    """The obis whose keys begin with ``key``, as ranges of ids."""

    key: bytes
    kind: Kind
    ranges: tuple[tuple[str, str], ...]


class Stretch:
    """The lines for a query of more than one key. See :class:`archec.access.ordering.OrderedLines`."""

    def __init__(self, archive: Archive, query: Query, lines_of: Callable[[Obi], Iterable[bytes]]) -> None:
        self._catalogue, self._query, self._lines_of = archive.catalogue, query, lines_of
        self._folder = archive.work if archive.work.is_dir() else Path(tempfile.gettempdir())

    def forward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        for group in groups_of(self._catalogue, self._query, start, end):
            with Sorter(self._folder) as found:
                self._read(group, start, end, found)
                for lines in self._batches(found):
                    yield from (line for line in sorted(lines) if start <= line < end)

    def backward(self, start: bytes, end: bytes) -> Iterator[bytes]:
        for group in reversed(groups_of(self._catalogue, self._query, start, end)):
            with Sorter(self._folder) as found, tempfile.TemporaryFile(dir=self._folder) as file:
                self._read(group, start, end, found)
                file.writelines(line + b"\n" for line in found)
                file.flush()
                ids = SortedFile(os.dup(file.fileno()), 0, "ids")
                for lines in self._batches(ids.backward(b"", b"\xff")):
                    yield from (line for line in sorted(lines, reverse=True) if start <= line < end)

    def _read(self, group: Group, start: bytes, end: bytes, found: Sorter) -> None:
        """Adds key and id of each obi of a group that can have lines between ``start`` and ``end``."""
        for low, high in group.ranges:
            for obi in self._catalogue.each_id(group.kind, low, high):
                key = urlkey(target_uri(obi)).encode()
                if key + b"!" > start and key + b" " < end:
                    found.add(key + b"\t" + obi.encode("utf-8", "surrogatepass"))

    def _batches(self, found: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Yields the lines of about ``_BATCH`` obis at a time. The lines of one key are in one batch."""
        batch: list[str] = []
        for _, same in groupby(found, key=lambda line: line.partition(b"\t")[0]):
            batch += [line.partition(b"\t")[2].decode("utf-8", "surrogatepass") for line in same]
            if len(batch) >= _BATCH:
                yield self._lines(batch)
                batch = []
        if batch:
            yield self._lines(batch)

    def _lines(self, ids: list[str]) -> list[bytes]:
        known = self._catalogue.obis(kind_of(ids[0]), ids, visits=False)
        return [line for obi in known.values() for line in self._lines_of(obi)]


def groups_of(catalogue: Catalogue, query: Query, start: bytes, end: bytes) -> list[Group]:
    """The groups with keys between ``start`` and ``end``, in the order of keys."""
    uri = uri_of(query.url)
    if begin := fileset_in(uri):
        return [Group(urlkey(target_uri(begin)).encode(), "fileset", ((begin, begin + _LAST),))]
    if handle := handle_in(uri):
        return [one for one in _archives(catalogue, handle) if one.key < end and one.key + b"\x7f" > start]
    found: dict[bytes, list[tuple[str, str]]] = defaultdict(list)
    host = re.split("[/?#]", uri.partition("://")[2], maxsplit=1)[0]
    for origin in _origins(catalogue) if query.match == "domain" else origins_of(host, catalogue):
        key = urlkey(f"{origin}/").partition(")")[0].encode() + b")"
        if key + b"0" > start and key + b"/" < end:
            found[key].append((f"{origin}/", f"{origin}0"))
    return [Group(key, "fobi", tuple(ranges)) for key, ranges in sorted(found.items())]


def _archives(catalogue: Catalogue, begin: str) -> list[Group]:
    """The groups of handles with this prefix, one per archive."""
    found: list[Group] = []
    low, high = begin, begin + _LAST
    while first := catalogue.ids("tobi", low, high, 1):
        parts = first[0].split(":", 2)
        if len(parts) < 3:
            archive, ends = first[0], first[0] + "\0"
        else:
            archive = f"{parts[0]}:{parts[1]}:"
            ends = archive + _LAST
        ids = (max(begin, archive), min(high, ends))
        found.append(Group(urlkey(target_uri(archive)).encode(), "tobi", (ids,)))
        low = ends
    return sorted(found)


def origins_of(rest: str, catalogue: Catalogue, at: Position | None = None) -> Iterator[str]:
    """Yields the spellings of a URL, given without scheme, that have the same key, as far as files of the catalogue
    begin like that: with any scheme, with and without ``www.``, ``www2.`` etc. ``at`` is the catalogue's position if it
    was just read."""
    www = found[0] if (found := _WWW.match(rest)) else ""
    try:
        begins = _begins(catalogue, at or catalogue.position())
    except _Moved:
        begins = tuple(_found_begins(catalogue))
    if www not in ("", "www."):  # perhaps one of too many
        begins = tuple(dict.fromkeys((*begins, *(f"{scheme}://{www}" for scheme in _SCHEMES))))
    return (begin + rest[len(www) :] for begin in begins)


class _Moved(Exception):
    """The catalogue was changed or cleared while it was read. Once it is rebuilt, it has its position again, so what
    was read must not be cached."""


@lru_cache(maxsize=16)
def _begins(catalogue: Catalogue, position: Position) -> tuple[str, ...]:
    found = tuple(_found_begins(catalogue))
    if catalogue.position() != position:
        raise _Moved
    return found


def _found_begins(catalogue: Catalogue) -> Iterator[str]:
    """Yields what URLs of files begin with: a scheme, with and without the prefixes ``www.``, ``www0.``, ``www1.`` ...
    of hosts."""
    for begin in (f"{scheme}://" for scheme in _SCHEMES):
        for low, high in ((begin, f"{begin}\x7f"), (f"{begin}www.", f"{begin}www/")):
            if catalogue.ids("fobi", low, high, 1):
                yield low
        low = f"{begin}www0"
        for _ in range(_MAX_NUMBERED):
            first = catalogue.ids("fobi", low, f"{begin}www:", 1)
            if not first:
                break
            label = re.split("[./]", first[0].removeprefix(begin), maxsplit=1)[0]
            if _NUMBERED.fullmatch(label):
                yield f"{begin}{label}."
            low = f"{begin}{label}0"


def _origins(catalogue: Catalogue) -> Iterator[str]:
    """Yields scheme and host of all files."""
    for scheme in _SCHEMES:
        low = f"{scheme}://"
        while first := catalogue.ids("fobi", low, f"{scheme}:0", 1):
            origin = f"{scheme}://{first[0].partition('://')[2].partition('/')[0]}"
            yield origin
            low = f"{origin}0"
