"""Checksums: parsing those of platforms, and comparing bytes with a manifest."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import BinaryIO, NamedTuple

from archec.catalogue.model import FilesetManifestFile
from archec.digest import Digests
from archec.fileset.status import Status

_PIECE = 1 << 20
_HEX = re.compile("[0-9a-f]+")
_LENGTHS = {"md5": 32, "sha1": 40, "sha256": 64}
_OTHERS = {"sha224": 56, "sha384": 96, "sha512": 128}
_BY_LENGTH = {length: name for name, length in (_LENGTHS | _OTHERS).items()}


class Checksums(NamedTuple):
    """Checksums as lower-case hex digits; None if not known. ``other`` is one of another kind: ``sha512:...``."""

    md5: str | None = None
    sha1: str | None = None
    sha256: str | None = None
    other: str | None = None


def read_whole(stream: BinaryIO) -> tuple[Digests, bytes]:
    """Reads a stream to its end. Returns its checksums and its first 4096 bytes."""
    digests, head = Digests(sha1=True), b""
    while data := stream.read(_PIECE):
        head = head or data[:4096]
        digests.update(data)
    return digests, head


def checksums(*written: str | None, kind: str | None = None) -> Checksums:
    """Parses checksums such as ``md5:900150...`` or ``SHA-1:...``. The kind of one without a prefix is ``kind``, or
    follows from its length. Text that is no checksum is ignored.
    """
    found: dict[str, str] = {}
    for text in written:
        prefix, colon, digits = (text or "").strip().lower().rpartition(":")
        name = (prefix if colon else kind or "").lower().replace("-", "").replace("_", "")
        if not name:
            name = _BY_LENGTH.get(len(digits), "")
        if not name or not _HEX.fullmatch(digits):
            continue
        if name not in _LENGTHS:
            found.setdefault("other", f"{name}:{digits}")
        elif _LENGTHS[name] == len(digits):
            found.setdefault(name, digits)
    return Checksums(**found)


def other_checksum(file: FilesetManifestFile) -> tuple[str, str] | None:
    """Returns the kind and hex digits of a checksum of another kind (SHA-224, SHA-384, SHA-512), if a platform gave
    one that can be compared."""
    extra = file.extra or {}
    text = extra.get("platform_checksum")
    if not isinstance(text, str) or extra.get("soft_checksum") is True:
        return None
    kind, _, digits = text.rpartition(":")
    return (kind, digits) if _OTHERS.get(kind) == len(digits) and _HEX.fullmatch(digits) else None


def digest_of(path: Path, kind: str) -> str:
    """The hex digits of a file's checksum of a kind."""
    digest = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as stream:
        while data := stream.read(_PIECE):
            digest.update(data)
    return digest.hexdigest()


def mismatch(file: FilesetManifestFile, found: Digests | FilesetManifestFile) -> Status | None:
    """Compares what was found with the manifest's size and checksums of a file, as far as it has them. Returns the
    status of the first mismatch, or None.

    Checksums are ignored if ``extra`` has ``soft_checksum``: some platforms state that of another form of the file.
    """
    soft = (file.extra or {}).get("soft_checksum") is True
    if file.size is not None and file.size != found.size:
        return Status.MISMATCH_SIZE
    checks = (
        (file.sha256, found.sha256, Status.MISMATCH_SHA256),
        (file.sha1, found.sha1, Status.MISMATCH_SHA1),
        (file.md5, found.md5, Status.MISMATCH_MD5),
    )
    for expected, actual, status in checks:
        if expected is not None and actual is not None and expected != actual and not soft:
            return status
    return None
