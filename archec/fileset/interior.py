"""Reads the files in a bundle (a zip or tar file) and computes their checksums, without unpacking it to disk.

Bundles are untrusted: names may be unsafe, sizes wrong, and members may expand without end.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import IO, BinaryIO, NamedTuple

from msgspec.structs import replace

from archec.catalogue.model import FilesetManifestFile
from archec.digest import Digests
from archec.errors import NotHeld
from archec.fileset.fields import clean
from archec.fileset.paths import unsafe
from archec.fileset.status import Status
from archec.text.sniff import sniff

_PIECE = 1 << 20
_NO_FILES = frozenset({"MANIFEST.TXT"})
"""Lists of contents that platforms add to their bundles."""
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, ValueError, OSError)
"""Errors that reading a damaged or hostile bundle may raise."""


class OutOfBounds(ValueError):
    """A bundle exceeds its bounds; ``status`` says which."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bounds(NamedTuple):
    """Limits of what is read from a bundle: the number of files, and their total size in bytes when unpacked."""

    files: int
    size: int


def interior(bundle: BinaryIO, bounds: Bounds) -> list[FilesetManifestFile]:
    """Returns the files in a bundle, in its order; each is read once. The status of a file that cannot be read says
    so. Raises one of ``BROKEN`` if it is not a readable bundle, OutOfBounds if it exceeds the bounds."""
    found: list[FilesetManifestFile] = []
    left = bounds.size
    names: Counter[str] = Counter()
    for name, size, stream, why in _members(bundle):
        if len(found) >= bounds.files:
            raise OutOfBounds(Status.TOO_MANY_FILES, f"more than {bounds.files} files")
        if name in _NO_FILES:
            continue
        file = _read(name, size, stream, why, left)
        names[file.path] += 1
        if (number := names[file.path]) > 1:
            file = replace(file, extra={**(file.extra or {}), "member": number})
        left -= file.size or 0
        if left < 0:
            raise OutOfBounds(Status.TOO_LARGE_SIZE, f"more than {bounds.size} bytes when unpacked")
        found.append(file)
    return found


def _members(bundle: BinaryIO) -> Generator[tuple[str, int, IO[bytes] | None, str], None, None]:
    """Yields (name, size, stream, "") for each file, or (name, size, None, reason) for one that cannot be opened."""
    if zipfile.is_zipfile(bundle):
        bundle.seek(0)
        with zipfile.ZipFile(bundle) as whole:
            for info in whole.infolist():
                if info.is_dir():
                    continue
                if info.flag_bits & 1:
                    yield info.filename, info.file_size, None, "encrypted"
                    continue
                try:
                    with whole.open(info) as stream:
                        yield info.filename, info.file_size, stream, ""
                except NotImplementedError as error:
                    yield info.filename, info.file_size, None, str(error)
        return
    bundle.seek(0)
    with tarfile.open(fileobj=bundle, mode="r|*") as tar:
        for member in tar:
            if member.isreg():
                yield member.name, member.size, tar.extractfile(member), ""
            elif not member.isdir():
                yield member.name, 0, None, "a link or a device"


def _read(name: str, size: int, stream: IO[bytes] | None, why: str, left: int) -> FilesetManifestFile:
    path = clean(name)
    reason = unsafe(path)
    if stream is None:
        return FilesetManifestFile(path, size, extra={"error": why}, status=Status.NOT_PROCESSED.value)
    digests, head = Digests(sha1=True), b""
    try:
        while data := stream.read(min(_PIECE, max(left - digests.size, 0) + 1)):
            head = head or data[:4096]
            digests.update(data)
            if digests.size > left:
                break
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        return FilesetManifestFile(path, size, extra={"error": str(error)[:200]}, status=Status.MISMATCH.value)
    extra = {"path_problem": reason} if reason else None
    return FilesetManifestFile(
        path, digests.size, digests.md5, digests.sha1, digests.sha256, sniff(head), extra,
        Status.UNSAFE_PATH.value if reason else Status.SUCCESS.value,
    )  # fmt: skip


class Member:
    """A file in a bundle, open for reading."""

    def __init__(self, path: str, stream: IO[bytes]) -> None:
        self._path, self._stream = path, stream

    def read(self, size: int = -1) -> bytes:
        """Reads the next bytes. Raises NotHeld if the bundle is damaged."""
        with _readable(self._path):
            return self._stream.read(size)


@contextmanager
def open_member(bundle: BinaryIO, path: str, number: int = 1) -> Iterator[Member]:
    """Opens a file in a bundle for reading. Of several with the same path it is the one with this ``number``, counted
    from 1. Raises NotHeld if there is none, or if the bundle cannot be read."""
    with closing(_members(bundle)) as members:
        with _readable(path):
            same = (member for member in members if clean(member[0]) == path)
            found = next(islice(same, number - 1, None), None)
        if found is None:
            raise NotHeld(f"{path}: the bundle contains no such file")
        _, _, stream, why = found
        if stream is None:
            raise NotHeld(f"{path}: cannot be read: {why}")
        yield Member(path, stream)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except BROKEN as error:
        raise NotHeld(f"{path}: cannot be read: {error}", hint="is it in a zip or tar file?") from error
