"""WARC records, and rows of an index, of the noted states of an obi."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warcio.recordloader import ArcWarcRecord

from archec.catalogue.model import Obi
from archec.store.layout import Layout
from archec.store.reader import open_obi
from archec.warc import cdxj, records
from archec.warc.records import Contents, Observation, RecordKind
from archec.web.messages import TLS_FIELD


def states(obi: Obi) -> Iterator[Observation]:
    """Yields the noted states of an obi as observations, oldest first."""
    for tist, sha256 in obi.history:
        if sha256 is not None:
            yield state(obi, tist, sha256)


def state(obi: Obi, tist: int, sha256: str) -> Observation:
    """The observation for the state that was noted at ``tist``."""
    version = obi.versions.get(sha256)
    if obi.kind != "fobi":
        size = version.size if version is not None else 0
        kind = version.type if version is not None and obi.kind == "fileset" else "text/plain"
        return Observation("resource", obi.id, tist, tist, sha256, size, kind, at=obi.bytes_at(tist))
    note = obi.notes.get(tist)
    size, kind = (version.size, version.type) if version is not None else (-1, "")
    if note is None:
        return Observation(_kind(obi.id, ""), obi.id, tist, tist, sha256, size, kind)
    headers, tls = note.headers, dict(note.headers).get(TLS_FIELD, "")
    if tls:
        headers = tuple(header for header in headers if header[0] != TLS_FIELD)
    own, at = _kind(obi.id, note.target), note.at or tist
    return Observation(own, obi.id, tist, tist, sha256, size, kind, note.status, headers, note.target, False, at, tls)


def record_of(layout: Layout, seen: Observation) -> tuple[ArcWarcRecord, Contents | None]:
    """Returns the WARC record of a state, and its contents; None for a redirect, which has none.

    Raises NotHeld, CorruptArchive and StorageFailed if the bytes cannot be read. The caller must verify that they match
    the noted state.
    """
    if seen.kind == "redirect":
        return records.redirect(seen, records.http_head(seen)), None
    if seen.kind == "resource":
        contents = records.contents_of(open_obi(layout, seen.at or seen.noted, seen.id))
        return records.resource(seen, contents), contents
    head = records.http_head(seen)
    contents = records.contents_of(open_obi(layout, seen.at or seen.noted, seen.id), head.headers_buff)
    return records.response(seen, head, contents), contents


def index_fields(seen: Observation, uri: str) -> dict[str, Any]:
    """The row of an observation of an obi with this URI in an index, without key and time. ``obi`` and ``tist`` locate
    its bytes."""
    fields: dict[str, Any] = {"url": uri, "mime": mime_of(seen)}
    if seen.kind in ("response", "redirect"):
        fields["status"] = str(records.http_status(seen))
    fields["digest"], fields["length"] = f"sha256:{seen.sha256}", str(seen.size)
    fields["obi"], fields["tist"] = seen.id, seen.tist
    return fields


def mime_of(seen: Observation) -> str:
    """The media type for the index: that of the contents if none was declared."""
    declared = cdxj.mime_of(seen)
    return declared if declared != "unk" else records.media_type(seen.type) or declared


def _kind(url: str, target: str) -> RecordKind:
    if target:
        return "redirect"
    return "resource" if url.startswith("ftp:") else "response"
