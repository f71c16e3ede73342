"""The record for a query: rows are tried in order until one can be loaded. Revisits are resolved."""

from __future__ import annotations

import asyncio
import base64
import heapq
import json
import re
from typing import NamedTuple

from msgspec.structs import replace
from starlette.responses import Response

from archec.access.collection import Lookup, Step, first_of
from archec.access.errors import NotInTime, NotThere, Refused, SourceFailed
from archec.access.exchange import answer, as_uri, errors_of
from archec.access.gate import Viewer
from archec.access.obi_source import TYPE
from archec.access.ordering import spelled_first
from archec.access.posts import METHOD, Asked, url_of_method
from archec.access.query import Query, all_of, joined, key_of, key_range, parse_filters
from archec.access.record import END, ClosedOnFailure, Record
from archec.access.rows import Row, as_cdxj
from archec.access.sources import Errors
from archec.access.stamps import http_date, of_date, seconds
from archec.errors import UsageError
from archec.server.responses import BodyResponse, in_pieces

WARC = "application/warc-record"
_NOT_FOUND = "No Resource Found"
_MAX_CDX = 2000
_MAX_ORIGINALS = 10
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")
_SHA_IN_HEX = re.compile(r"[0-9A-F]{40}|[0-9A-F]{64}")
_GET = Asked()
_FRAMING = ("transfer-encoding", "content-encoding", "content-length")


class Loaded(NamedTuple):
    """A record and the row that it was loaded by."""

    row: Row
    record: Record

    @property
    def timestamp(self) -> str:
        """The time of the record. Another server may have given another one than that of the row."""
        return self.record.timestamp or self.row.timestamp


async def load(lookup: Lookup, query: Query, asked: Asked = _GET, *, spelled: str = "") -> Loaded:
    """Returns the first record that can be loaded. With ``spelled``, a memento is wanted: of captures at one time, that
    of this URL comes before others with its key, and no other time stands in for one that the viewer may not have.
    Raises Refused: 451 or 403 if the viewer may not have it, 404 if there is none."""
    refused: Refused | None = None
    may_load = lookup.viewer.may_load(query.range)
    queries = [query]
    if asked.method == "HEAD" and query.key:  # captures of HEAD come before those of GET, which have the same headers
        posted = url_of_method(query.url, "HEAD", "")
        queries.append(replace(query, posted=posted, range=key_range(posted, "exact")))
    for step in lookup.collection.steps:
        # GET is asked for first: a source that only fails for the URL of a HEAD still has its captures of GET
        found = [(await lookup.rows_of(step, one), one) for one in queries]
        if query.closest and len(found) > 1:  # the nearest first, and of two as near that of HEAD
            wanted = seconds(query.closest)
            of_get, of_head = (rows for rows, _ in found)
            both = heapq.merge(of_head, of_get, key=lambda row: abs(seconds(row.timestamp) - wanted))
            found = [(both, query)]
        for rows, query in reversed(found):
            if spelled:
                rows = spelled_first(rows, spelled)
            while (row := await first_of(rows, query)) is not None:
                try:
                    record = await _try(lookup, step, row, asked)
                except Refused as refusal:
                    if refusal.http_status not in (403, 451):
                        raise
                    refused, record = refused or refusal, None
                    if not may_load or (spelled and row.timestamp == query.closest):
                        raise refused from None  # if not may_load, as for every other row
                if record is None:
                    await asyncio.sleep(0)  # others have their turn: the next of many rows may be there at once
                    continue
                try:
                    async with ClosedOnFailure(record.close):
                        record = await resolved(lookup, row, record)
                    async with ClosedOnFailure(record.close):
                        if row.origin.type != "live" and is_self_redirect(record, row.url):
                            raise SourceFailed(f"Self Redirect {row.url} -> {record.http_header('location')[:200]}")
                        return Loaded(row, record)
                except SourceFailed as error:
                    lookup.errors[row.origin.source] = error.message
    raise refused or lookup.viewer.refusal(404, _NOT_FOUND, lookup.errors)


async def _try(lookup: Lookup, step: Step, row: Row, asked: Asked = _GET) -> Record | None:
    """Loads the record of a row with the first loader that can. Returns None if none can; the reason is then in
    ``errors``. Raises Refused unless the viewer may have both what the row names and what the record says it is."""
    errors = lookup.errors
    lookup.viewer.check_content(row)
    reasons: list[str] = []
    faults: list[str] = []
    loaders = [one for one in step.loaders if (one, row.origin.source) not in errors.silent]
    for loader in loaders:
        try:
            record = await loader.load(row, asked)
            if record is not None:
                async with ClosedOnFailure(record.close):
                    check_record(record, row, lookup.viewer)
                for reason in filter(None, (*faults, record.reported)):
                    errors[row.origin.source] = reason
                return record
        except SourceFailed as error:
            reasons.append(error.message)
            if isinstance(error, NotInTime):
                errors.silent.add((loader, row.origin.source))
            if not isinstance(error, NotThere):
                faults.append(error.message)
    if reasons or len(loaders) == len(step.loaders):
        errors[row.origin.source] = "; ".join(reasons) or "no entry of 'resource' can load it"
    return None


def check_record(record: Record, row: Row, viewer: Viewer) -> None:
    """Raises Refused unless the viewer may have a record by its own URL, time and media type. The row is not enough:
    anyone who may add rows could add one that points to any other record."""
    if row.origin.type == TYPE or viewer.rules.are_trivial:
        return
    fields = {**row.fields, "url": record.url or row.url, "mime": record.media_type}
    viewer.check_content(Row(row.line, row.urlkey, record.timestamp or row.timestamp, fields, row.origin))


def is_self_redirect(record: Record, url: str) -> bool:
    """Whether a response redirects to its own URL: to one with the same key, where it would be found again."""
    location = record.http_header("location")
    if record.http_status[:1] != "3" or record.http_status == "304" or not location:
        return False
    try:
        return key_of(joined(url, location)) == key_of(url)
    except UsageError:
        return False


# -- revisits ---------------------------------------------------------------------------------------


async def resolved(lookup: Lookup, row: Row, record: Record) -> Record:
    """Returns the record, or for a revisit a response with the payload of the capture that it refers to.

    Raises SourceFailed if that capture is not found. It is not needed for a revisit that redirects.
    """
    if record.type != "revisit":
        return record
    if record.http_status[:1] == "3" and record.http_status != "304":
        return _as_response(record, record.http, None)
    original = await _original(lookup, row, record)
    if original is None:
        raise SourceFailed("Original for revisit record could not be loaded")
    await record.close()
    http = _merged_http(record.http, original) if record.http else original.http
    return _as_response(record, http, original)


async def _original(lookup: Lookup, row: Row, record: Record) -> Record | None:
    url = record.get("WARC-Refers-To-Target-URI").strip("<> ") or row.url
    wanted = of_date(record.get("WARC-Refers-To-Date")).ljust(14, "0")
    wanted = wanted if wanted.strip("0") else row.timestamp[:14]
    digest = _digest(record.get("WARC-Payload-Digest") or row.text("digest"))
    try:
        query = replace(all_of(url, wanted), filters=parse_filters(["!=mime:warc/revisit"]))
        if METHOD in row.urlkey and url == row.url:
            query = replace(query, range=key_range(url, "exact", row.urlkey))
    except UsageError:
        return None
    tried = 0
    for step in lookup.collection.steps:
        rows = await lookup.rows_of(step, query)
        same = (one for one in rows if not digest or _digest(one.text("digest")) in ("", digest))
        while tried < _MAX_ORIGINALS and (found := await first_of(same, query)) is not None:
            tried += 1
            try:
                loaded = await _try(lookup, step, found)
            except Refused:
                continue
            if loaded is None:
                continue
            if loaded.type in ("response", "resource"):
                return loaded
            await loaded.close()
    return None


def _digest(text: str) -> str:
    """A digest without its algorithm, of SHA in base 32, so that it can be compared. "" if there is none."""
    value = text.rpartition(":")[2].upper()
    if _SHA_IN_HEX.fullmatch(value):
        return base64.b32encode(bytes.fromhex(value)).decode("ascii").rstrip("=")
    return value.strip("-=")


def _as_response(revisit: Record, http: bytes, original: Record | None) -> Record:
    """A response record with the identity of a revisit and the payload of the record that it refers to, if one is
    needed."""
    refers = ("WARC-Refers-To-Target-URI", "WARC-Refers-To-Date")
    drop = {"warc-type", "warc-profile", "warc-block-digest", "content-length", "warc-truncated", "content-type"}
    drop.add("warc-refers-to")  # WARC 1.1 does not allow it in a response
    drop |= {name.lower() for name in refers} if original is not None else {"warc-payload-digest"}
    kept = [(name, value) for name, value in revisit.headers if name.lower() not in drop]
    kind, content_type, size = "response", "application/http; msgtype=response", 0
    if original is not None:
        size = original.size
        values = (original.get("WARC-Target-URI"), original.get("WARC-Date"))
        kept += zip(refers, values, strict=True)
        if not http:
            kind, content_type = original.type, original.get("Content-Type")
    headers = [("WARC-Type", kind), *kept, ("Content-Type", content_type), ("Content-Length", str(len(http) + size))]
    payload = original or Record((), b"", 0, in_pieces(b""), revisit.close)
    return Record(headers, http, size, payload.body, payload.close, revisit.version)


def _merged_http(http: bytes, original: Record) -> bytes:
    """The HTTP header of a revisit, except for the headers that frame the payload, which are those of the original."""
    head, _, _ = http.partition(b"\n")
    revisit = Record((), http, 0, in_pieces(b""))
    kept = [(name, value) for name, value in revisit.http_headers() if name.lower() not in _FRAMING]
    if not original.http:
        kept.append(("Content-Type", original.get("Content-Type")))
        kept.append(("Content-Length", str(original.size)))
    kept += [(name, value) for name, value in original.http_headers() if name.lower() in _FRAMING]
    status = head.rstrip(b"\r")
    if revisit.http_status == "304":
        status = original.http.partition(b"\n")[0].rstrip(b"\r") or b"HTTP/1.1 200 OK"
    lines = b"".join(f"{name}: {value}\r\n".encode("utf-8", "surrogateescape") for name, value in kept)
    return status + b"\r\n" + lines + b"\r\n"


# -- the answer -------------------------------------------------------------------------------------


def answer_record(
    loaded: Loaded, errors: Errors, links: str, *, packed: bool = False, negotiated: bool = False
) -> Response:
    """Returns a record for the resource API, with gzip if ``packed``. ``links`` is the ``Link`` header. ``negotiated``:
    Accept-Datetime may select the capture."""
    row, record = loaded
    cdx = _NOT_ASCII.sub(lambda one: json.dumps(one[0])[1:-1], as_cdxj(row).decode("utf-8", "replace").strip())
    headers = [
        ("Archive-Source-Coll", row.origin.coll),
        ("Memento-Datetime", http_date(loaded.timestamp)),
        ("Link", links),
        ("WARC-Target-URI", as_uri(record.url or row.url)),
        ("Warcserver-Type", "warc"),
        ("Warcserver-Source-Coll", as_uri(row.origin.source)),
        ("Warcserver-Cdx", cdx[:_MAX_CDX]),
        *errors_of(errors),
    ]
    if negotiated:
        headers.append(("Vary", "accept-datetime"))
    made = answer(200, b"", WARC, headers)
    return BodyResponse(made, record.size, record.body, record.close, record.head + record.http, END, packed=packed)
