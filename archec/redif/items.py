"""What a source yields: blobs, directories, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Protocol

from archec.redif.problems import Problem, shown

__all__ = ["PART", "Blob", "Directory", "Item", "Source", "Unread"]

PART = 4 * 1024 * 1024
"""Bytes: the largest blob, and the largest single template that is read."""


class Blob(NamedTuple):
    """A file, or a part of one that is larger than :data:`PART`.

    ``path`` is relative, without a leading ``./``. ``part`` counts from 0, ``last`` is true for the
    file's last part; a part after the first begins with a template. ``first_line`` is the file's
    line that ``data`` begins with. ``member`` counts what the source met: where a tarball has one
    path twice, the greater ``member`` is the file. ``encoding`` is empty where ``data`` is as the
    file has it, else the name of the encoding from which ``data`` was turned into UTF-8. Of a large
    file that cannot be a template file (a film, a PDF) only the beginning is given.
    """

    path: str
    data: bytes
    part: int = 0
    last: bool = True
    first_line: int = 1
    member: int = 0
    encoding: str = ""


class Directory(NamedTuple):
    """A directory of the source, empty or not; ``path`` ends in ``/``."""

    path: str


class Unread(NamedTuple):
    """A file or directory (``path`` ends in ``/``) that is there but could not be read, and why.

    It is no evidence of absence (invariant 6). Parts of it may have been yielded before. ``path``
    may hold surrogate escapes and ``..``: a key for :func:`archec.redif.place.place`, nothing to
    open. ``member`` is as in a blob: the same where parts of the file were yielded.
    """

    path: str
    problem: Problem
    member: int = 0

    @classmethod
    def of(cls, path: str, code: str, message: str, line: int = 0) -> Unread:
        """An ``Unread`` with its problem."""
        return cls(path, Problem(shown(path), line, code, message))


Item = Blob | Directory | Unread


class Source(Protocol):
    """A data set that is read once, from its first file to its last; also a context manager."""

    @property
    def newest(self) -> int:
        """The newest modification time met so far that is not in the future, a tist; 0: none."""

    @property
    def whole(self) -> bool:
        """True once everything was read to a clean end; False before, or where it ended early."""

    @property
    def damage(self) -> Problem | None:
        """Why the data set ended early, None where it did not."""

    @property
    def files(self) -> int:
        """Files read so far; what is ``Unread`` from the start does not count."""

    @property
    def bytes_read(self) -> int:
        """Bytes of the files read so far."""

    @property
    def size(self) -> int:
        """Bytes of the tarball as it lies on disk; 0 for a directory, whose size is not known."""

    @property
    def position(self) -> int:
        """Bytes of the tarball consumed so far; for a directory the same as ``bytes_read``."""

    def __iter__(self) -> Iterator[Item]: ...

    def __enter__(self) -> Source: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def close(self) -> None:
        """Closes the file or directory behind it; harmless when repeated."""
