"""The bytes of an observation, read from the obi store and checked against the catalogue before they go out."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from typing import BinaryIO, NamedTuple

from archec.errors import ArchecError, CorruptArchive, NotHeld, StorageFailed
from archec.store.durable import failure
from archec.store.layout import Layout
from archec.store.reader import open_obi

__all__ = ["EMPTY", "Body", "Problem", "Spoilt", "digest_of_head", "open_body"]

_IN_MEMORY = 8 << 20
_BUFFER = 1 << 20


class Problem(NamedTuple):
    """Something that could not be exported: ``code`` is ``corrupt``, ``missing`` or ``unreadable``, ``path``
    where it lies or should lie in the obi store."""

    code: str
    id: str
    tist: int
    path: str
    message: str

    def as_value(self) -> dict[str, object]:
        """As JSON."""
        return self._asdict()


class Spoilt(ArchecError):
    """The bytes of an observation are not those that the catalogue names; ``problem`` says which."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Body(NamedTuple):
    """The whole of an observation's bytes: a stream at its beginning, its size, and its digest
    (``sha1:`` and base 32, as WARC files have it). ``block`` is a digest that began with the HTTP header."""

    stream: BinaryIO
    size: int
    payload: str
    block: str


def _digest(sha1: hashlib._Hash) -> str:
    return "sha1:" + base64.b32encode(sha1.digest()).decode("ascii")


def digest_of_head(head: bytes) -> str:
    """The digest of a block that is an HTTP header only."""
    return _digest(hashlib.sha1(head, usedforsecurity=False))


EMPTY = digest_of_head(b"")
"""The digest of nothing: that of a redirect, whose own body is not kept."""


def open_body(layout: Layout, tist: int, id: str, md5: str, head: bytes = b"") -> Body:  # noqa: A002
    """The bytes noted of an obi at ``tist``. ``head`` goes into the block's digest before them.

    Raises :class:`Spoilt` where they are missing, unreadable, or not those of ``md5``.
    """
    path = layout.path(tist, id)
    try:
        return _read(open_obi(layout, tist, id), md5, head)
    except NotHeld:
        raise Spoilt(Problem("missing", id, tist, path, "is not there")) from None
    except (CorruptArchive, StorageFailed) as error:
        code = "unreadable" if isinstance(error, StorageFailed) else "corrupt"
        raise Spoilt(Problem(code, id, tist, path, error.message)) from error
    except OSError as error:
        raise Spoilt(Problem("unreadable", id, tist, path, failure(error, path).message)) from error
    except _Differs as found:
        raise Spoilt(Problem("corrupt", id, tist, path, f"has the md5 {found}, not {md5}")) from None


class _Differs(Exception):
    """The md5 that was found."""


def _read(file: BinaryIO, md5: str, head: bytes) -> Body:
    try:
        own = hashlib.md5(usedforsecurity=False)
        payload = hashlib.sha1(usedforsecurity=False)
        block = hashlib.sha1(head, usedforsecurity=False) if head else payload
        size = os.fstat(file.fileno()).st_size
        data = file.read(_IN_MEMORY)
        whole = len(data) < _IN_MEMORY
        kept, size = data, 0
        while data:
            size += len(data)
            own.update(data)
            payload.update(data)
            if block is not payload:
                block.update(data)
            data = b"" if whole else file.read(_BUFFER)
        if own.hexdigest() != md5:
            raise _Differs(own.hexdigest())
        if whole:
            file.close()
            return Body(io.BytesIO(kept), size, _digest(payload), _digest(block))
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return Body(file, size, _digest(payload), _digest(block))
