"""Checksums of file contents: all that archec keeps of a stream, computed in one pass over its bytes."""

from __future__ import annotations

import hashlib


class Digests:
    """MD5, SHA-256 and size of a stream that is fed in pieces; SHA-1 as well where a format asks for it (WARC).

    The hex properties describe what has been fed so far and may be read at any time. None of the checksums is used
    as a secret; SHA-256 is the identity of a state, MD5 stands beside it as its name in the catalogue.
    """

    __slots__ = ("_md5", "_sha1", "_sha256", "size")

    def __init__(self, *, sha1: bool = False) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256(usedforsecurity=False)
        self._sha1 = hashlib.sha1(usedforsecurity=False) if sha1 else None
        self.size = 0
        """Number of bytes fed so far."""

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Feeds the next piece; a memoryview must be one of bytes (its length counts as the size)."""
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
        """SHA-1 in lower-case hex digits. Raises ValueError where it was not asked for."""
        if self._sha1 is None:
            raise ValueError("SHA-1 was not asked for")
        return self._sha1.hexdigest()


def md5_hex(data: bytes | bytearray | memoryview) -> str:
    """MD5 of bytes at hand, in lower-case hex digits."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """SHA-256 of bytes at hand, in lower-case hex digits."""
    return hashlib.sha256(data, usedforsecurity=False).hexdigest()
