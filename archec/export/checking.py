"""Checks a vault against its own indexes: whether the WARC files exist, their sizes, and their contents."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed
from warcio.limitreader import LimitReader

from archec.errors import CorruptArchive, storage_errors
from archec.export.units import Unit
from archec.export.vault import Vault
from archec.files import open_file
from archec.warc.cdxj import IndexLine

_CHUNK = 1 << 18
_HINT = "move its index away to export the series again"


class VaultFault(NamedTuple):
    """A fault of a vault: ``code`` is ``vault-missing``, ``vault-size`` or ``vault-corrupt``, ``path`` is relative to
    the vault."""

    code: str
    path: str
    message: str


class Extents:
    """The beginning of the first and the end of the last record of each WARC file, according to the index lines."""

    def __init__(self) -> None:
        self._extents: dict[str, tuple[int, int]] = {}

    def add(self, line: IndexLine) -> None:
        """Adds an index line. Raises :class:`CorruptArchive` if it names no record."""
        name, offset, length, _ = named(line)
        first, end = self._extents.get(name, (offset, 0))
        self._extents[name] = min(first, offset), max(end, offset + length)

    def faults(self, vault: Vault) -> Iterator[VaultFault]:
        """Files that are missing, have another size, or do not begin with a warcinfo record, which is in no index."""
        for name, (first, end) in sorted(self._extents.items()):
            path = vault.root / "archive" / name
            with storage_errors(path):
                size = path.stat().st_size if path.is_file() else -1
            if size < 0:
                yield VaultFault("vault-missing", f"archive/{name}", f"is missing: {_HINT}")
            elif size != end:
                message = f"has {size} bytes instead of {end} as in the index: {_HINT}"
                yield VaultFault("vault-size", f"archive/{name}", message)
            elif wrong := _wrong_at(path, 0, first, kind="warcinfo"):
                yield VaultFault("vault-corrupt", f"archive/{name}", f"its first record: {wrong}; {_HINT}")


def named(line: IndexLine) -> tuple[str, int, int, str]:
    """The file, the offset, the length and the digest in an index line. Raises CorruptArchive if they are missing."""
    try:
        value = line.fields()
        offset, length = int(value["offset"]), int(value["length"])
        if min(offset, length) < 0:
            raise ValueError("a negative place")
        return str(value["filename"]), offset, length, str(value.get("digest", ""))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptArchive(f"an index line names no record: {line.line[:200]!r}") from error


def read_unit(vault: Vault, unit: Unit) -> Iterator[tuple[int, VaultFault | None]]:
    """Reads every record in the index of a unit; yields its length in bytes and its fault, if any."""
    extents = Extents()
    for line in vault.lines(unit):
        extents.add(line)
    unreadable: set[str] = set()
    for fault in extents.faults(vault):
        if fault.code != "vault-corrupt":
            unreadable.add(fault.path)
        yield 0, fault
    for line in vault.lines(unit):
        name, offset, length, digest = named(line)
        path = f"archive/{name}"
        if path in unreadable:
            continue
        wrong = _wrong_at(vault.root / path, offset, length, digest)
        at = f"the record of {line.prefix.decode('ascii', 'replace').partition(' ')[0]} at byte {offset}"
        yield length, VaultFault("vault-corrupt", path, f"{at}: {wrong}; {_HINT}") if wrong else None


def _wrong_at(path: Path, offset: int, length: int, digest: str = "", kind: str = "") -> str:
    """The fault of a record; empty if it is intact."""
    with storage_errors(path), open_file(path) as file:
        file.seek(offset)
        # Not decompressed by warcio, which treats damage within a member as its end.
        with gzip.GzipFile(fileobj=LimitReader(file, length)) as member:
            return _wrong(member, digest, kind)


def _wrong(member: gzip.GzipFile, digest: str, kind: str) -> str:
    try:
        records = 0
        for record in ArchiveIterator(member, check_digests=True):
            records += 1
            if kind and record.rec_type != kind:
                return f"is not a {kind} record"
            stream = record.content_stream()
            while stream.read(_CHUNK):
                continue
            if record.digest_checker.passed is False:
                return "its bytes do not have the digest that it names"
            if digest and record.rec_headers.get_header("WARC-Payload-Digest") not in (None, digest):
                return "the index names another digest"
        return "" if records == 1 and not member.read(1) else "is not one record"
    except (ArchiveLoadFailed, zlib.error, EOFError, ValueError, OSError) as error:
        return f"cannot be read: {error}"
