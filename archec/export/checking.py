"""A vault against its own indexes: whether the WARC files are there and as long as it takes, and what they hold."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

import orjson
from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed

from archec.errors import CorruptArchive
from archec.export.units import Unit
from archec.export.vault import Vault
from archec.store.durable import storage_errors
from archec.warc.cdxj import IndexLine

_CHUNK = 1 << 18
_HINT = "move its index away, and the series is exported again"


class VaultFault(NamedTuple):
    """Something that is wrong with a vault: ``code`` is ``vault-missing``, ``vault-size`` or ``vault-corrupt``,
    ``path`` is relative to the vault."""

    code: str
    path: str
    message: str


class Lengths:
    """How long each WARC file must be, by the index lines that name it."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}

    def add(self, line: IndexLine) -> None:
        """Another line of the index. Raises :class:`CorruptArchive` where it names no record."""
        name, offset, length, _ = named(line)
        self._lengths[name] = max(self._lengths.get(name, 0), offset + length)

    def faults(self, vault: Vault) -> Iterator[VaultFault]:
        """The files that are not there, or of another size."""
        for name, end in sorted(self._lengths.items()):
            path = vault.root / "archive" / name
            with storage_errors(path):
                size = path.stat().st_size if path.is_file() else -1
            if size < 0:
                yield VaultFault("vault-missing", f"archive/{name}", f"is not there: {_HINT}")
            elif size != end:
                message = f"has {size} bytes, where the index says {end}: {_HINT}"
                yield VaultFault("vault-size", f"archive/{name}", message)


def named(line: IndexLine) -> tuple[str, int, int, str]:
    """The file, the offset, the length and the digest that a line names."""
    try:
        value = orjson.loads(line.line[line.line.index(b"{") :])
        return str(value["filename"]), int(value["offset"]), int(value["length"]), str(value.get("digest", ""))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptArchive(f"an index line names no record: {line.line[:200]!r}") from error


def read_unit(vault: Vault, unit: Unit) -> Iterator[tuple[int, VaultFault | None]]:
    """Reads every record that the index of a unit names: how many bytes it has, and what is wrong with it."""
    lengths = Lengths()
    for line in vault.lines(unit):
        lengths.add(line)
    absent: set[str] = set()
    for fault in lengths.faults(vault):
        absent.add(fault.path)
        yield 0, fault
    for line in vault.lines(unit):
        name, offset, length, digest = named(line)
        path = f"archive/{name}"
        if path in absent:
            continue
        with storage_errors(vault.root / path), open(vault.root / path, "rb") as file:
            file.seek(offset)
            wrong = _wrong(io.BufferedReader(_Slice(file, length)), digest)
        at = f"the record of {line.prefix.decode('ascii', 'replace').partition(' ')[0]} at byte {offset}"
        yield length, VaultFault("vault-corrupt", path, f"{at}: {wrong}; {_HINT}") if wrong else None


def _wrong(member: io.BufferedReader, digest: str) -> str:
    """What is wrong with one record; empty where nothing is."""
    try:
        records = 0
        for record in ArchiveIterator(member, check_digests=True):
            records += 1
            stream = record.content_stream()
            while stream.read(_CHUNK):
                continue
            if record.digest_checker.passed is False:
                return "its bytes do not have the digest that it names"
            if digest and record.rec_headers.get_header("WARC-Payload-Digest") not in (None, digest):
                return "the index names another digest"
        return "" if records == 1 else "is not one record"
    except (ArchiveLoadFailed, zlib.error, EOFError, ValueError, OSError) as error:
        return f"cannot be read: {error}"


class _Slice(io.RawIOBase):
    """The next ``length`` bytes of a file."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file, self._left = file, length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


def vault_units(vault: Vault, units: Iterable[Unit]) -> Iterator[Unit]:
    """Those of the units that have an index."""
    return (unit for unit in units if vault.index_path(unit).exists())
