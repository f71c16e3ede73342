"""WARC 1.1 records (ISO 28500:2017) for states and visits. Deterministic: an observation always yields the same
bytes."""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import re
import uuid
from typing import BinaryIO, Literal, NamedTuple
from urllib.parse import quote

from warcio.recordbuilder import RecordBuilder
from warcio.recordloader import ArcWarcRecord
from warcio.statusandheaders import StatusAndHeaders

from archec import __version__
from archec.digest import Digests
from archec.ids import is_fileset
from archec.tist import iso
from archec.urlkey import target_uri

WARC_VERSION = "1.1"

RecordKind = Literal["resource", "response", "redirect", "revisit", "metadata"]
"""In this order: a template, a manifest or a file fetched by FTP; a response with its body; a redirect; a visit that
found a state unchanged; what is known about a loss."""
LOSS = "urn:x-archec:lost:"
"""Prefix of the URI in the record of a loss, so that it is not taken for a capture of the obi."""

_NAMESPACE = uuid.NAMESPACE_URL
_BUILDER = RecordBuilder(warc_version=WARC_VERSION)
_PROFILES = {
    False: "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest",
    True: "http://netpreserve.org/warc/1.1/revisit/server-not-modified",
}
_TEMPLATE = "text/plain; charset=utf-8"
_HTTP = "application/http; msgtype=response"
_FIELDS = "application/warc-fields"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")
_PRINTABLE = "".join(map(chr, range(32, 127)))
_CHUNK = 1 << 20


class Observation(NamedTuple):
    """A state of an obi, a visit that found a state unchanged, or a loss.

    ``noted`` is the tist at which the state was noted; for a revisit and a loss it is earlier than ``tist``. ``at`` is
    the tist under which the bytes are stored, 0 if it is the same. ``sha256``, ``size`` (-1: unknown) and ``type``
    (media type) describe the bytes; ``status``, ``headers`` and ``target`` (of a redirect) the response. ``unchanged``:
    a revisit relies on the server's 304, not on a comparison of bytes. ``tls`` are the TLS exceptions that were needed.
    The ``headers`` of a loss are what is known about it.
    """

    kind: RecordKind
    id: str
    tist: int
    noted: int
    sha256: str
    size: int
    type: str
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    target: str = ""
    unchanged: bool = False
    at: int = 0
    tls: str = ""


class Contents(NamedTuple):
    """The bytes of an observation: a stream positioned at its start, its size, and its checksums in hex.

    ``payload`` and ``block`` are digests in the format of WARC headers. The block of a response includes its HTTP
    header.
    """

    stream: BinaryIO
    size: int
    md5: str
    sha256: str
    payload: str
    block: str


def contents_of(file: BinaryIO, head: bytes = b"") -> Contents:
    """Reads an open file, and computes its digests and that of the block that begins with the HTTP header ``head``. The
    file is closed if that fails."""
    try:
        digests = Digests(sha1=True)
        block = hashlib.sha1(head, usedforsecurity=False)
        while data := file.read(_CHUNK):
            digests.update(data)
            if head:
                block.update(data)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    payload = _digest(bytes.fromhex(digests.sha1))
    return Contents(
        file, digests.size, digests.md5, digests.sha256, payload, _digest(block.digest()) if head else payload
    )


def digest_of(data: bytes) -> str:
    """The digest of bytes in memory, in the format of WARC headers."""
    return _digest(hashlib.sha1(data, usedforsecurity=False).digest())


def _digest(sha1: bytes) -> str:
    # Tools for web archives expect SHA-1 in base32. SHA-256 is stated next to it.
    return "sha1:" + base64.b32encode(sha1).decode("ascii")


EMPTY = digest_of(b"")
"""The digest of zero bytes: the payload of a redirect, whose body is not stored."""


def record_id(tist: int, obi: str, kind: str) -> str:
    """``WARC-Record-ID``: the same in every export for the same tist, id and kind of record."""
    name = f"urn:x-archec:{kind}:{tist}:{obi}".encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return f"<urn:uuid:{uuid.uuid5(_NAMESPACE, name)}>"


def media_type(text: str) -> str:
    """The media type at the start of a text, or ``""``."""
    match = _MEDIA_TYPE.match(text)
    return match[0] if match else ""


def http_status(seen: Observation) -> int:
    """The recorded status, or the usual one if none was recorded."""
    return seen.status or (302 if seen.kind == "redirect" else 200)


def http_head(seen: Observation) -> StatusAndHeaders:
    """The recorded status line and headers of a response.

    ``Content-Length`` is the number of bytes in the record. A different value sent by the server (or that of the body
    of a redirect, which is not stored) is in ``X-Archive-Orig-Content-Length``.
    """
    size = "0" if seen.kind == "redirect" else str(seen.size)
    headers: list[tuple[str, str]] = []
    for name, value in seen.headers:
        value = _CONTROL.sub(" ", value).strip()
        if name.lower() == "content-length" and value != size and size != "-1":
            name = f"X-Archive-Orig-{name}"
        headers.append((name, value))
    names = {name.lower() for name, _ in headers}
    if "content-length" not in names and size != "-1":
        headers.append(("content-length", size))
    if seen.kind == "redirect" and "location" not in names:
        headers.append(("location", seen.target))
    status = http_status(seen)
    line = f"{status} {http.client.responses.get(status, '')}".rstrip()
    head = StatusAndHeaders(line, headers, protocol="HTTP/1.1")
    try:
        head.compute_headers_buffer()
    except UnicodeEncodeError:  # the name of a parameter is not ASCII
        head.headers = [(name, quote(value, safe=_PRINTABLE)) for name, value in headers]
        head.compute_headers_buffer()
    return head


_SHA256 = "WARC-X-Archec-SHA256"
"""The header for the SHA-256 by which archec identifies contents. WARC digests are SHA-1, as other tools expect."""


def warcinfo(part_of: str, filename: str, tist: int) -> ArcWarcRecord:
    """The first record of a file. ``tist`` is that of the archive's state, not the time of the export."""
    fields = {
        "software": f"archec/{__version__}",
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "isPartOf": part_of,
        "description": "Exported from a time-addressed archive; WARC-Date is when an object was noted.",
    }
    block = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode("utf-8", "replace")
    headers = {
        "WARC-Record-ID": record_id(tist, filename, "warcinfo"),
        "WARC-Date": iso(tist),
        "WARC-Filename": filename,
    }
    return _BUILDER.create_warc_record("", "warcinfo", io.BytesIO(block), len(block), warc_headers_dict=headers)


def response(seen: Observation, head: StatusAndHeaders, contents: Contents) -> ArcWarcRecord:
    headers = _headers(seen, contents.payload, contents.block) | {_SHA256: contents.sha256}
    if identified := media_type(seen.type):
        headers["WARC-Identified-Payload-Type"] = identified
    return _BUILDER.create_warc_record(
        target_uri(seen.id), "response", contents.stream, contents.size, _HTTP, headers, http_headers=head
    )


def resource(seen: Observation, contents: Contents) -> ArcWarcRecord:
    """A template, a manifest, or a file fetched by FTP: bytes without an HTTP header."""
    has_type = "://" in seen.id[:8] or is_fileset(seen.id)
    kind = (media_type(seen.type) or "application/octet-stream") if has_type else _TEMPLATE
    headers = _headers(seen, contents.payload, contents.block) | {"Content-Type": kind, _SHA256: contents.sha256}
    return _BUILDER.create_warc_record(target_uri(seen.id), "resource", contents.stream, contents.size, kind, headers)


def redirect(seen: Observation, head: StatusAndHeaders) -> ArcWarcRecord:
    """A redirect, without its body, which is not stored."""
    headers = _headers(seen, EMPTY, digest_of(head.headers_buff)) | {"WARC-Truncated": "unspecified"}
    return _BUILDER.create_warc_record(
        target_uri(seen.id), "response", io.BytesIO(), 0, _HTTP, headers, http_headers=head
    )


def revisit(seen: Observation, digest: str) -> ArcWarcRecord:
    """A visit that found a state unchanged. ``digest`` is the payload digest of that state."""
    original = "resource" if seen.id.startswith("ftp:") else "response"
    headers = _headers(seen, digest, EMPTY) | {
        "WARC-Profile": _PROFILES[seen.unchanged],
        "WARC-Refers-To": record_id(seen.noted, seen.id, original),
        "WARC-Refers-To-Target-URI": target_uri(seen.id),
        "WARC-Refers-To-Date": iso(seen.noted),
    }
    return _BUILDER.create_warc_record(target_uri(seen.id), "revisit", None, 0, _HTTP, headers)


def loss_block(seen: Observation) -> bytes:
    """What is known about a loss, as named fields."""
    lines = (f"{name}: {_CONTROL.sub(' ', value).strip()}\r\n" for name, value in seen.headers)
    return "".join(lines).encode("utf-8", "replace")


def loss(seen: Observation, block: bytes) -> ArcWarcRecord:
    """A metadata record about a loss. It refers to the last state before it."""
    original = "response" if seen.id.startswith("http") else "resource"
    headers = {
        "WARC-Record-ID": record_id(seen.tist, seen.id, "metadata"),
        "WARC-Date": iso(seen.tist),
        "WARC-Refers-To": record_id(seen.noted, seen.id, original),
        "WARC-Block-Digest": digest_of(block),
    }
    uri = LOSS + target_uri(seen.id)
    return _BUILDER.create_warc_record(uri, "metadata", io.BytesIO(block), len(block), _FIELDS, headers)


def _headers(seen: Observation, payload: str, block: str) -> dict[str, str]:
    kind = "response" if seen.kind == "redirect" else seen.kind
    return ({"WARC-X-Archec-TLS": seen.tls} if seen.tls else {}) | {
        "WARC-Record-ID": record_id(seen.tist, seen.id, kind),
        "WARC-Date": iso(seen.tist),
        "WARC-Payload-Digest": payload,
        "WARC-Block-Digest": block,
    }
