"""Checksums as platforms write them, and what bytes are checked against."""

from __future__ import annotations

import re
from typing import BinaryIO, NamedTuple

from archec.catalogue.model import FilesetManifestFile
from archec.digest import Digests
from archec.fileset.status import Status

_HEX = re.compile("[0-9a-f]+")
_LENGTHS = {"md5": 32, "sha1": 40, "sha256": 64}
_OTHERS = {"sha224": 56, "sha384": 96, "sha512": 128}
_BY_LENGTH = {length: name for name, length in _LENGTHS.items()}


class Checksums(NamedTuple):
    """Hex digits in lower case; None: not known."""

    md5: str | None = None
    sha1: str | None = None
    sha256: str | None = None

    @classmethod
    def of(cls, digests: Digests) -> Checksums:
        """Those of a stream."""
        return cls(digests.md5, digests.sha1, digests.sha256)


def read_whole(stream: BinaryIO) -> tuple[Digests, bytes]:
    """The checksums of a stream, and its first bytes."""
    digests, head = Digests(sha1=True), b""
    while data := stream.read(1 << 20):
        head = head or data[:4096]
        digests.update(data)
    return digests, head


def checksums(*written: str | None, kind: str | None = None) -> Checksums:
    """What is in checksums such as ``md5:900150...``, ``SHA-1:...``, or in bare ones, whose ``kind`` or length tells.

    What is none, or of another kind (SHA-512), is left out.
    """
    found: dict[str, str] = {}
    for text in written:
        prefix, colon, digits = (text or "").strip().lower().rpartition(":")
        name = (prefix if colon else kind or "").lower().replace("-", "").replace("_", "")
        if not name:
            name = _BY_LENGTH.get(len(digits), "")
        if _LENGTHS.get(name) == len(digits) and _HEX.fullmatch(digits):
            found.setdefault(name, digits)
    return Checksums(**found)


def other_checksum(file: FilesetManifestFile) -> tuple[str, str] | None:
    """The kind and the hex digits of a checksum of another kind, such as SHA-512, if a platform gave one."""
    said = (file.extra or {}).get("platform_checksum")
    kind, _, digits = said.lower().rpartition(":") if isinstance(said, str) else ("", "", "")
    kind = kind.replace("-", "").replace("_", "")
    return (kind, digits) if _OTHERS.get(kind) == len(digits) and _HEX.fullmatch(digits) else None


def mismatch(file: FilesetManifestFile, size: int, found: Checksums) -> Status | None:
    """In what bytes are not what the manifest says of a file; None if they are, as far as it says anything.

    A checksum that is ``soft`` (in ``extra``) is not held against the bytes: some platforms keep that of another form.
    """
    soft = (file.extra or {}).get("soft_checksum") is True
    if file.size is not None and file.size != size:
        return Status.MISMATCH_SIZE
    checks = (
        (file.sha256, found.sha256, Status.MISMATCH_SHA256),
        (file.sha1, found.sha1, Status.MISMATCH_SHA1),
        (file.md5, found.md5, Status.MISMATCH_MD5),
    )
    for said, is_, status in checks:
        if said is not None and is_ is not None and said != is_ and not soft:
            return status
    return None
