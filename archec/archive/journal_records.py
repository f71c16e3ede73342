"""Reads the records of journals. Lines of types that were not asked for are not decoded."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from archec.catalogue.journal_lines import Record, decode
from archec.catalogue.model import Kind
from archec.errors import CorruptJournal
from archec.store.journal import JournalBatch, read_batches

_R = TypeVar("_R", bound=Struct)


def records(path: Path, *kinds: type[_R], obis: Kind | None = None, words: Collection[bytes] = ()) -> Iterator[_R]:
    """Yields the records of these ``kinds`` in a journal, with the filters of :func:`records_in`. Raises
    :class:`archec.errors.CorruptJournal` with file and batch."""
    for batch in read_batches(path):
        yield from records_in(batch, path, *kinds, obis=obis, words=words)


def records_in(
    batch: JournalBatch, path: Path, *kinds: type[_R], obis: Kind | None = None, words: Collection[bytes] = ()
) -> Iterator[_R]:
    """Yields the records of these ``kinds`` in a batch of the journal at ``path``: with ``obis``, only obis of that
    kind; with ``words``, only lines that contain one of them. Other lines are not decoded."""
    starts = tuple(_start(kind, obis) for kind in kinds)
    for line in batch.lines:
        if line.startswith(starts) and (not words or any(word in line for word in words)):
            record = _decoded(line, batch, path)
            if isinstance(record, kinds):
                yield record


def all_records_in(batch: JournalBatch, path: Path) -> list[Record]:
    return [_decoded(line, batch, path) for line in batch.lines]


def _decoded(line: bytes, batch: JournalBatch, path: Path) -> Record:
    try:
        return decode(line, f"{path}, batch {batch.n}")
    except CorruptJournal as error:
        error.path = path
        raise


def _start(kind: type[Struct], obis: Kind | None) -> bytes:
    """The first bytes of a line of this type, as the encoder writes it."""
    tag = str(kind.__struct_config__.tag)
    return f'{{"type":"{tag}","kind":"{obis}"'.encode() if obis and tag == "obi" else f'{{"type":"{tag}"'.encode()
