"""What the worker processes of an audit do: take chunks of journal lines and look at what these name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from archec.audit.entries import Entry, key_of, told_by
from archec.audit.findings import Finding
from archec.audit.fixity import Inspector
from archec.audit.pace import Pace
from archec.catalogue.open import open_catalogue
from archec.errors import CorruptJournal
from archec.ids import file_name
from archec.store.layout import Layout
from archec.workers.pool import Pool


class Tools(NamedTuple):
    """What a worker needs: the store, the catalogue's URL (empty: none) and its base, bytes a second
    (0: no limit), and whether it is to give the keys of what it looked at."""

    layout: Layout
    url: str
    base: Path
    rate: float
    keys: bool


class Chunk(NamedTuple):
    """Lines of batches ``first`` to ``last`` of the journal at ``path`` (relative); ``whole``: the last of
    them is complete with this chunk. ``compare``: the catalogue has followed the journal so far. ``weight``
    is about how much work it is, a small file counting 1."""

    path: str
    run: int
    first: int
    last: int
    whole: bool
    compare: bool
    lines: list[bytes]
    weight: int


class Seen(NamedTuple):
    """What became of a chunk: entries and bytes looked at, what is wrong with which entry (None: with a
    line), and the keys of the entries, 16 bytes each."""

    files: int
    read: int
    findings: list[tuple[Entry | None, Finding]]
    keys: bytes


def inspectors(tools: Tools, inspector: Inspector, *, workers: int, inline: int) -> Pool[Chunk, Seen]:
    """A pool that looks at chunks, in order; those of ``inline`` weight together in this process, by ``inspector``."""
    return Pool(
        "archec.audit.workers:inspecting",
        [tools],
        Seen,
        workers=workers,
        here=lambda chunk: look_at(chunk, inspector, tools),
        inline=inline,
        ordered=True,
    )


def inspecting(tools: Tools) -> Callable[[Chunk], Seen]:
    """In a worker: what looks at a chunk."""
    inspector: Inspector | None = None

    def inspect(chunk: Chunk) -> Seen:
        nonlocal inspector
        if inspector is None:
            catalogue = open_catalogue(tools.url, base=tools.base, read_only=True) if tools.url else None
            inspector = Inspector(tools.layout, catalogue, Pace(tools.rate))
        return look_at(chunk, inspector, tools)

    return inspect


def look_at(chunk: Chunk, inspector: Inspector, tools: Tools) -> Seen:
    """Looks at all that a chunk names."""
    findings: list[tuple[Entry | None, Finding]] = []
    entries: list[Entry] = []
    where = f"batch {chunk.first}" + (f" to {chunk.last}" if chunk.last > chunk.first else "")
    for line in chunk.lines:
        try:
            told = told_by(line, where)
        except CorruptJournal as error:
            findings.append((None, Finding("journal-line", chunk.path, error.message)))
            continue
        if told is not None:
            entries += told.entries()
    before = inspector.read
    paths = paths_of(tools.layout, entries)
    wrong = inspector.inspect(entries, paths, compare=chunk.compare)
    by_place = {(entry.tist, entry.id): entry for entry in entries} if wrong else {}
    findings += [(by_place[finding.tist, finding.id], finding) for finding in wrong]
    keys = b"".join(map(key_of, paths)) if tools.keys else b""
    return Seen(len(entries), inspector.read - before, findings, keys)


def paths_of(layout: Layout, entries: Sequence[Entry]) -> list[str]:
    """The relative paths of entries; most of them have one tist, so its directory is made once."""
    if layout.fanout:
        return [layout.path(entry.tist, entry.id) for entry in entries]
    directories = {tist: layout.directory(tist, "") for tist in {entry.tist for entry in entries}}
    return [f"{directories[entry.tist]}/{file_name(entry.id)}" for entry in entries]
