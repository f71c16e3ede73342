"""Which obis held some bytes, or some text, and from when to when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from archec.archive.lookup import path_held
from archec.archive.opening import Archive
from archec.catalogue.interface import Checksum
from archec.catalogue.model import KINDS, Kind, Obi, Version
from archec.tist import iso

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Holding:
    """An obi held these bytes from the tist ``noted`` until the tist ``until``, when it changed or was lost (None: it
    holds them now). ``path`` is relative to the obi store, None where nothing lies there."""

    id: str
    kind: Kind
    noted: int
    until: int | None
    sha256: str
    md5: str
    size: int
    type: str
    path: str | None

    def as_value(self) -> dict[str, Any]:
        """As JSON values."""
        until = iso(self.until) if self.until is not None else None
        return {
            "id": self.id, "kind": self.kind, "noted": self.noted, "noted_time": iso(self.noted),
            "until": self.until, "until_time": until, "sha256": self.sha256, "md5": self.md5, "size": self.size,
            "type": self.type, "path": self.path,
        }  # fmt: skip


def holdings(archive: Archive, checksum: Checksum, value: str) -> Iterator[Holding]:
    """All that held bytes with this ``sha256`` or ``md5``, or with this ``text`` in them, obi by obi."""
    for kind in KINDS:
        ids = archive.catalogue.holders(kind, checksum, value)
        while page := list(islice(ids, _PAGE)):
            for obi in archive.catalogue.obis(kind, page).values():
                yield from _of(archive, obi, checksum, value)


def _of(archive: Archive, obi: Obi, checksum: Checksum, value: str) -> Iterator[Holding]:
    wanted = {version.sha256: version for version in obi.versions.values() if _has(version, checksum, value)}
    entries = list(obi.history)
    ends = [tist for tist, _ in entries[1:]]
    for (tist, state), until in zip(entries, [*ends, None], strict=True):
        version = wanted.get(state or "")
        if version is not None:
            yield Holding(
                obi.id, obi.kind, tist, until, version.sha256, version.md5, version.size, version.type,
                path_held(archive, obi, tist),
            )  # fmt: skip


def _has(version: Version, checksum: Checksum, value: str) -> bool:
    return value == {"sha256": version.sha256, "md5": version.md5, "text": version.text}[checksum]
