"""Observations as WARC 1.1 records (ISO 28500:2017), the same bytes whenever they are made."""

from __future__ import annotations

import http.client
import re
import uuid
from io import BytesIO
from typing import TYPE_CHECKING

from archec import __version__
from archec.export.bodies import EMPTY, Body
from archec.export.observations import Kind, Observation
from archec.export.units import Unit
from archec.ids import target_uri
from archec.tist import iso

if TYPE_CHECKING:
    from warcio.recordloader import ArcWarcRecord
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

__all__ = ["http_head", "info", "media_type", "record_id", "redirect", "resource", "response", "revisit"]

_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""RFC 4122's name space for URLs; the ids of records are made in it."""
_PROFILES = {
    False: "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest",
    True: "http://netpreserve.org/warc/1.1/revisit/server-not-modified",
}
_TEMPLATE = "text/plain; charset=utf-8"
_HTTP = "application/http; msgtype=response"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")


def record_id(tist: int, obi: str, kind: str) -> str:
    """``WARC-Record-ID``: the same for the same tist, id and kind of record, in every export."""
    name = f"urn:x-archec:{kind}:{tist}:{obi}".encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return f"<urn:uuid:{uuid.uuid5(_SPACE, name)}>"


def http_head(seen: Observation) -> StatusAndHeaders:
    """Status line and headers as they were recorded.

    ``Content-Length`` is that of the bytes in the record; where the server said something else (or a redirect
    had a body, which is not kept) its own value is under ``X-Archive-Orig-Content-Length``.
    """
    from warcio.statusandheaders import StatusAndHeaders

    redirects = seen.kind == Kind.REDIRECT
    status = seen.status or (302 if redirects else 200)
    size = "0" if redirects else str(seen.size)
    headers: list[tuple[str, str]] = []
    for name, value in seen.headers:
        value = _CONTROL.sub(" ", value).strip()
        if name.lower() == "content-length" and value != size and size != "-1":
            name = f"X-Archive-Orig-{name}"
        headers.append((name, value))
    names = {name.lower() for name, _ in headers}
    if "content-length" not in names and size != "-1":
        headers.append(("content-length", size))
    if redirects and "location" not in names:
        headers.append(("location", seen.target))
    line = f"{status} {http.client.responses.get(status, '')}".rstrip()
    head = StatusAndHeaders(line, headers, protocol="HTTP/1.1")
    head.compute_headers_buffer()
    return head


def info(writer: WARCWriter, unit: Unit, filename: str, tist: int) -> ArcWarcRecord:
    """The record that begins a file. ``tist`` is that of the archive's state, not of the export."""
    fields = {
        "software": f"archec/{__version__}",
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "isPartOf": unit.handle,
        "description": "Exported from a time-addressed archive; WARC-Date is when an object was noted.",
    }
    block = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode("utf-8", "replace")
    headers = {
        "WARC-Record-ID": record_id(tist, filename, "warcinfo"),
        "WARC-Date": iso(tist),
        "WARC-Filename": filename,
    }
    return writer.create_warc_record("", "warcinfo", BytesIO(block), len(block), warc_headers_dict=headers)


def response(writer: WARCWriter, seen: Observation, head: StatusAndHeaders, body: Body) -> ArcWarcRecord:
    """An answer with its body."""
    headers = _headers(seen, body.payload, body.block) | _identified(seen.type)
    return writer.create_warc_record(
        target_uri(seen.id), "response", body.stream, body.size, _HTTP, headers, http_headers=head
    )


def resource(writer: WARCWriter, seen: Observation, body: Body) -> ArcWarcRecord:
    """A template, or what came by ftp: bytes without an HTTP header."""
    is_file = "://" in seen.id[:8]
    kind = (media_type(seen.type) or "application/octet-stream") if is_file else _TEMPLATE
    headers = _headers(seen, body.payload, body.block) | {"Content-Type": kind}
    return writer.create_warc_record(target_uri(seen.id), "resource", body.stream, body.size, kind, headers)


def redirect(writer: WARCWriter, seen: Observation, head: StatusAndHeaders, block: str) -> ArcWarcRecord:
    """An answer that redirects; its own body is not kept."""
    headers = _headers(seen, EMPTY, block) | {"WARC-Truncated": "unspecified"}
    return writer.create_warc_record(
        target_uri(seen.id), "response", BytesIO(), 0, _HTTP, headers, http_headers=head
    )


def revisit(writer: WARCWriter, seen: Observation, digest: str) -> ArcWarcRecord:
    """A visit that found what was noted before; ``digest`` is that of what was noted."""
    original = Kind.RESOURCE if seen.id.startswith("ftp:") else Kind.RESPONSE
    headers = _headers(seen, digest, EMPTY) | {
        "WARC-Profile": _PROFILES[seen.unchanged],
        "WARC-Refers-To": record_id(seen.noted, seen.id, original),
        "WARC-Refers-To-Target-URI": target_uri(seen.id),
        "WARC-Refers-To-Date": iso(seen.noted),
    }
    return writer.create_warc_record(target_uri(seen.id), "revisit", None, 0, _HTTP, headers)


def _headers(seen: Observation, payload: str, block: str) -> dict[str, str]:
    kind = Kind.RESPONSE if seen.kind == Kind.REDIRECT else seen.kind
    return {
        "WARC-Record-ID": record_id(seen.tist, seen.id, kind),
        "WARC-Date": iso(seen.tist),
        "WARC-Payload-Digest": payload,
        "WARC-Block-Digest": block,
    }


def _identified(declared: str) -> dict[str, str]:
    found = media_type(declared)
    return {"WARC-Identified-Payload-Type": found} if found else {}


def media_type(text: str) -> str:
    """The media type at the beginning of a text, empty where there is none."""
    match = _MEDIA_TYPE.match(text)
    return match[0] if match else ""
