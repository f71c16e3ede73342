"""Reads the files in a bundle (a zip or tar file) and computes their checksums, without unpacking it to disk.

Bundles are untrusted: names may be unsafe, sizes wrong, and members may expand without end.
"""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast

from msgspec.structs import replace

from archec.catalogue.model import FilesetManifestFile
from archec.digest import Digests
from archec.errors import NotHeld
from archec.fileset.fields import clean
from archec.fileset.paths import unsafe
from archec.fileset.platforms.base import MOST_FILES
from archec.fileset.status import Status
from archec.redif.inflate import Damaged, Raw, chunks
from archec.store.writer import Temp
from archec.text.sniff import sniff

_PIECE = 1 << 20
_PADDING = 100
"""Chunks after the last file of a tar file that are read."""
_NO_FILES = frozenset({"MANIFEST.TXT"})
"""Lists of contents that platforms add to their bundles."""
_BROKEN_MEMBER = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)
BROKEN = (*_BROKEN_MEMBER, tarfile.TarError, Damaged, NotImplementedError, ValueError)
"""Errors that reading a damaged or hostile bundle may raise."""
_MOST_OF_HEADER = 1 << 20
"""Bytes of an extended header of tar, and of all that are for all files, which are kept in memory."""
_MOST_EXTENDED = 20
"""Extended headers in a row, each of which tarfile reads in a call of its own within that of the last."""
_DIRECTORY = 1 << 20, 400
"""Bytes of the central directory of a zip file, and of the names in a tar file: so many, and so many for each file that
it may have."""
_STEP = 4096
"""Bytes that are read at once of what zipfile decompresses without a limit (bzip2 and LZMA): up to 80 MB in memory."""
_FOLDERS = 10
"""Entries of a tar file for each file that it may have: directories are entries, too."""


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
    listed = _DIRECTORY[0] + bounds.files * _DIRECTORY[1]
    names: Counter[str] = Counter()
    for name, size, stream, why in _members(bundle, bounds.files):
        listed -= len(name)
        if listed < 0:
            raise OutOfBounds(Status.TOO_MANY_FILES, "the names of its files are too long")
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


class _InSteps:
    """A file of which at most ``most`` bytes are read at once. If more are wanted, it reads less, or if it ``refuses``,
    raises OutOfBounds."""

    def __init__(self, file: IO[bytes], most: int, *, refuses: bool = False) -> None:
        self._file, self._most, self._refuses = file, most, refuses
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > self._most and self._refuses:
            raise OutOfBounds(Status.TOO_MANY_FILES, f"a list of files of {size} bytes")
        return self._file.read(min(size, self._most))


class _Chunks:
    """Chunks as a file that is read in pieces of at most their size."""

    def __init__(self, of: Iterator[bytes]) -> None:
        self._of, self._data = of, b""

    def read(self, size: int) -> bytes:
        self._data = self._data or next(self._of, b"")
        data, self._data = self._data[:size], self._data[size:]
        return data


class _Header(tarfile.TarInfo):
    """A header of tar. tarfile itself takes damaged ones for the end, and reads extended ones of any size."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> _Header:
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if isinstance(error, tarfile.EOFHeaderError):  # type: ignore[attr-defined]
                raise
            raise tarfile.ReadError(f"a damaged header: {error}") from error

    def _proc_member(self, tarfile_: tarfile.TarFile) -> Any:
        of = cast(_Tar, tarfile_)
        if self.type in _EXTENDED:
            of.extended += 1
            of.shared += self.size if self.type == tarfile.XGLTYPE else 0
            if of.extended > _MOST_EXTENDED or max(self.size, of.shared) > _MOST_OF_HEADER:
                raise tarfile.ReadError("more extended headers than a file needs")
        else:
            of.extended = 0
        if self.type == tarfile.GNUTYPE_SPARSE:
            self._refuse_sparse()
        return super()._proc_member(tarfile_)  # type: ignore[misc]

    def _refuse_sparse(self, *_: object) -> None:
        raise tarfile.ReadError("a sparse file, whose list of holes may have any length")

    _proc_gnusparse_10 = _refuse_sparse


class _Tar(tarfile.TarFile):
    """A tar file that counts the extended headers since the last file, and the bytes of those for all files."""

    tarinfo = _Header
    extended = shared = 0


_EXTENDED = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip


def _members(
    bundle: BinaryIO, most: int
) -> Generator[tuple[str, int, IO[bytes] | None, str | Exception], None, None]:
    """Yields (name, size, stream, "") for each file, or (name, size, None, reason) for one that cannot be opened."""
    bundle.seek(0)
    if bundle.read(2) == b"PK" and zipfile.is_zipfile(bundle):  # a tar file may end with a zip file
        bundle.seek(0)
        limited = _InSteps(bundle, _DIRECTORY[0] + most * _DIRECTORY[1], refuses=True)
        with zipfile.ZipFile(cast(IO[bytes], limited)) as whole:
            for info in whole.infolist():
                if info.filename.endswith("/"):
                    continue
                if info.flag_bits & 1:
                    yield info.filename, info.file_size, None, "encrypted"
                    continue
                try:
                    with whole.open(info) as stream:
                        is_limited = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                        steps = stream if is_limited else cast(IO[bytes], _InSteps(stream, _STEP))
                        yield info.filename, info.file_size, steps, ""
                except (NotImplementedError, zipfile.BadZipFile, UnicodeDecodeError) as error:
                    yield info.filename, info.file_size, None, error
        return
    bundle.seek(0)
    unpacked = chunks(Raw(bundle))
    with _Tar.open(fileobj=cast(BinaryIO, _Chunks(unpacked)), mode="r|") as tar:
        for _ in range(most * _FOLDERS):
            if (member := tar.next()) is None:
                break
            cast(Any, tar).members = []  # which tarfile would keep
            if member.isreg():
                yield member.name, member.size, tar.extractfile(member), ""
            elif not member.isdir():
                yield member.name, 0, None, "a link or a device"
        else:
            raise OutOfBounds(Status.TOO_MANY_FILES, f"more than {most * _FOLDERS} files and directories")
        for _ in islice(unpacked, _PADDING):  # with the checksum at their end
            pass


def _read(name: str, size: int, stream: IO[bytes] | None, why: str | Exception, left: int) -> FilesetManifestFile:
    path = clean(name)
    reason = unsafe(path)
    if stream is None:
        status = Status.MISMATCH if isinstance(why, (zipfile.BadZipFile, UnicodeDecodeError)) else Status.NOT_PROCESSED
        return FilesetManifestFile(path, size, extra={"error": str(why)[:200]}, status=status.value)
    digests, head = Digests(sha1=True), b""
    try:
        while data := stream.read(min(_PIECE, max(left - digests.size, 0) + 1)):
            head = head or data[:4096]
            digests.update(data)
            if digests.size > left:
                break
    except _BROKEN_MEMBER as error:
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
    with closing(_members(bundle, MOST_FILES)) as members:
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


def unpack_gzip(path: Path, plain: Temp, most: int) -> bool:
    """Decompresses a gzip file into ``plain``. Returns whether it is intact and has at most ``most`` bytes."""
    try:
        with gzip.open(path) as stream:
            while plain.size <= most and (data := stream.read(_PIECE)):
                plain.write(data)
    except (OSError, EOFError, zlib.error):
        return False
    return plain.size <= most
