"""Tar headers: ustar, GNU and pax, read strictly. Source: POSIX.1-2017 pax, GNU tar manual.

Only what a data set needs is taken from a header; everything is checked, nothing is guessed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from archec.redif.inflate import Damaged

__all__ = ["BLOCK", "REGULAR", "Header", "Pax", "clean_name", "parse_header", "parse_pax"]

BLOCK = 512
REGULAR = (b"0", b"\0", b"7")

_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
_PAX_LENGTH = re.compile(rb"([0-9]{1,10}) ")
_PAX_ONLY_MTIME = re.compile(rb"([0-9]{2}) mtime=([0-9]{1,12})(?:\.[0-9]*)?\n")
_PAX_NUMBER = re.compile(rb"(-?)([0-9]{1,20})(?:\.[0-9]*)?")
_LONGEST_NAME = 4096
"""Bytes: PATH_MAX. A name goes with each template of its file, so a megabyte of it would be gigabytes of scratch."""


class Header(NamedTuple):
    """One header block: ``name`` as stored (prefix joined), ``size`` in bytes, ``mtime`` a tist."""

    kind: bytes
    name: bytes
    size: int
    mtime: int


class Pax(NamedTuple):
    """What an extended header changes of the next header; None: nothing.

    ``trouble`` says why the member that follows must not be read, ``""`` where it may be.
    """

    name: bytes | None = None
    size: int | None = None
    mtime: int | None = None
    trouble: str = ""


def parse_header(block: bytes) -> Header:
    """The header in a block of 512 bytes; :class:`Damaged` where the block is none."""
    if len(block) < BLOCK:
        raise Damaged("it is shorter than a tar header")
    try:
        stored = int(block[148:156].strip(b" \0") or b"0", 8)
    except ValueError:
        raise Damaged("a tar header has no checksum") from None
    rest = block[:148] + block[156:]
    # What is added up without its NULs gives the same sum in a third of the time.
    if sum(rest.translate(None, b"\0")) + 256 != stored and _signed_sum(rest) != stored:
        raise Damaged("a tar header has a wrong checksum")
    size, mtime = _number(block, 124, 136), _number(block, 136, 148)
    if size < 0:
        raise Damaged("a tar header has a negative size")
    name = block[:100]
    end = name.find(b"\0")
    if end >= 0:
        name = name[:end]
    if block[345] and block[257:263] == b"ustar\0":
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    return Header(block[156:157], name, size, mtime)


def parse_pax(data: bytes) -> Pax:
    """The records of an extended header; :class:`Damaged` where they are malformed."""
    match = _PAX_ONLY_MTIME.fullmatch(data)
    if match is not None and int(match[1]) == len(data):
        return Pax(None, None, int(match[2]))
    name: bytes | None = None
    size: int | None = None
    mtime: int | None = None
    trouble = ""
    at = 0
    while at < len(data) and data[at]:
        match = _PAX_LENGTH.match(data, at)
        end = at + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(data) or data[end - 1] != 10:
            raise Damaged("a pax header is malformed")
        key, equals, value = data[match.end() : end - 1].partition(b"=")
        if not equals:
            raise Damaged("a pax header is malformed")
        if key == b"path":
            name = value
        elif key == b"mtime":
            mtime = _pax_number(value)
        elif key == b"size":
            size = _pax_number(value)
            if size is None or size < 0:
                raise Damaged("a pax header has a wrong size")
        elif key.startswith(b"GNU.sparse."):
            trouble = "a sparse file"
        at = end
    return Pax(name, size, mtime, trouble)


def clean_name(name: bytes) -> tuple[str, str]:
    """``(path, "")`` of a member's stored name, or ``(key, what is wrong with it)``.

    The path has no leading ``./``, no empty and no ``.`` components and no trailing slash; ``""``
    is the data set's root itself.
    """
    if len(name) > _LONGEST_NAME:
        return name[:_LONGEST_NAME].decode("utf-8", "surrogateescape"), f"the name has {len(name)} bytes"
    try:
        path = name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("utf-8", "surrogateescape"), "the name is not UTF-8"
    if "\0" in path:
        return path, "the name holds a NUL"
    if not ("/." in path or "//" in path or path[:1] in "./" or path[-1:] == "/"):
        return path, ""
    if path.startswith("/"):
        return path, "the name is absolute"
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        return path, "the name holds '..'"
    return "/".join(parts), ""


def _number(block: bytes, begin: int, end: int) -> int:
    """A number in octal or in GNU's base 256; -1 for any that is negative."""
    match = _OCTAL.fullmatch(block, begin, end)
    if match is not None:
        return int(match[1] or b"0", 8)
    if block[begin] == 0x80:
        return int.from_bytes(block[begin + 1 : end], "big")
    if block[begin] == 0xFF:
        return -1
    raise Damaged("a tar header has a malformed number")


def _pax_number(value: bytes) -> int | None:
    match = _PAX_NUMBER.fullmatch(value)
    if match is None:
        return None
    return -int(match[2]) if match[1] else int(match[2])


def _signed_sum(rest: bytes) -> int:
    """The checksum as some old systems made it, of signed characters."""
    return sum(byte - 256 if byte > 127 else byte for byte in rest) + 256
