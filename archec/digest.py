"""Checksums of file contents, all computed in one pass over a stream."""

from __future__ import annotations

import hashlib
from typing import IO

_PIECE = 1 << 18


class Digests:
    """MD5, SHA-256 and size of a stream that is fed in chunks; SHA-1 as well if a format needs it (WARC).

    The hex properties describe what has been fed so far and may be read at any time. None of the checksums is used
    for secrecy; SHA-256 is the identity of a state, MD5 is kept as the paper's name for it.
    """

    __slots__ = ("_md5", "_sha1", "_sha256", "size")

    def __init__(self, *, sha1: bool = False) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256(usedforsecurity=False)
        self._sha1 = hashlib.sha1(usedforsecurity=False) if sha1 else None
        self.size = 0
        """Number of bytes fed so far."""

    @classmethod
    def of(cls, file: IO[bytes]) -> Digests:
        """The digests of a file, from where it is read to its end."""
        digests = cls()
        while data := file.read(_PIECE):
            digests.update(data)
        return digests

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Feeds the next chunk; a memoryview must have items of one byte (its length counts as the size)."""
        self._md5.update(data)
        self._sha256.update(data)
        if self._sha1 is not None:
            self._sha1.update(data)
        self.size += len(data)

    @property
    def md5(self) -> str:
        """MD5 in lower-case hex digits."""
        return self._md5.hexdigest()

    @property
    def sha256(self) -> str:
        """SHA-256 in lower-case hex digits."""
        return self._sha256.hexdigest()

    @property
    def sha1(self) -> str:
        """SHA-1 in lower-case hex digits. Raises ValueError if it was not requested."""
        if self._sha1 is None:
            raise ValueError("SHA-1 was not requested")
        return self._sha1.hexdigest()


def md5_hex(data: bytes | bytearray | memoryview) -> str:
    """MD5 of bytes, in lower-case hex digits."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """SHA-256 of bytes, in lower-case hex digits."""
    return hashlib.sha256(data, usedforsecurity=False).hexdigest()
