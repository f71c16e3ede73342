"""``archec access index``: creates or updates the index of a directory of WARC and ARC files.

The index of ``warcs/`` is ``warcs.cdxj`` next to it. Files whose size and mtime have not changed are not read again,
unless they were damaged. Rows of removed files are dropped.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from warcio.recordloader import ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeaders, StatusAndHeadersParser, StatusAndHeadersParserException

from archec.access.errors import SourceFailed
from archec.access.feeding import locked, write_lines
from archec.access.posts import Asked, PostedBody, key_of_method, key_of_request
from archec.access.query import key_of
from archec.access.record import arc_headers
from archec.access.stamps import of_date
from archec.errors import UsageError, storage_errors
from archec.files import read_file
from archec.progress import Meter
from archec.store.durable import atomic_write
from archec.store.sorting import SortedLines
from archec.units import counted
from archec.warc.framing import Block, Records

_ENDINGS = (".warc", ".warc.gz", ".arc", ".arc.gz")
_KINDS = ("response", "revisit", "resource", "metadata", "conversion")
_OF_ANOTHER = (b"warc-concurrent-to", b"warc-refers-to")
"""Metadata with these headers and the URL of a page describe another record, and are no capture of it: crawlers write
them with the URL and the time of each response."""
_WITH_HTTP = ("response", "revisit")
_PIECE = 1 << 20
_MAX_POSTED = 4 << 20
_HEAD = 1 << 13
_MAX_LINE = 1 << 20
_REQUEST = StatusAndHeadersParser(ArcWarcRecordLoader.HTTP_VERBS, verify=False)
_RESPONSE = StatusAndHeadersParser(ArcWarcRecordLoader.HTTP_TYPES, verify=False)
_UNPARSABLE = (SourceFailed, StatusAndHeadersParserException, EOFError, ValueError)
_MAX_REASON = 200
"""Characters of an error message, which may quote the file."""


class _Lines(io.BufferedReader):
    """A reader whose lines have a limit: a longer one is read as several."""

    def readline(self, size: int | None = -1, /) -> bytes:
        return super().readline(_MAX_LINE if size is None or size < 0 else size)


class _Found(NamedTuple):
    """What the index needs of a record. ``pair`` is the same for a request and its response. A request has no
    ``fields``, but the ``key`` of its response: "" if that is the key of its URL. ``id`` is that of the response, "" in
    a request that does not name it."""

    pair: str
    key: str = ""
    id: str = ""
    stamp: str = ""
    fields: Mapping[str, str] = {}

    def answers(self, request: _Found) -> bool:
        return self.pair == request.pair and request.id in ("", self.id)


class _DamagedFile(Exception):
    """A file is damaged."""


class Indexed(NamedTuple):
    """The result of indexing: files in the directory, files read now, rows of the index, and messages about damaged
    files."""

    files: int
    read: int
    rows: int
    damaged: tuple[str, ...]


def index_path(folder: Path) -> Path:
    folder = folder if folder.name not in ("", "..") else Path(os.path.abspath(folder))
    return folder.with_name(f"{folder.name}.cdxj")


def index_folder(folder: Path, meter: Meter) -> Indexed:
    """Creates or updates the index of a directory. Raises UsageError, StorageFailed, StorageFull."""
    folder = Path(os.path.abspath(folder))
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a directory")
    with locked(folder.parent, f".{folder.name}.lock"):
        return _index(folder, meter)


def _index(folder: Path, meter: Meter) -> Indexed:
    target, state_file = index_path(folder), folder.with_name(f".{folder.name}.indexed")
    now = {name: _stamp(folder / name) for name in _files(folder)}
    known = _known(state_file) if target.exists() else {}
    same = {name for name, stamp in now.items() if known.get(name) == stamp}
    fresh = sorted(set(now) - same)
    damaged: dict[str, str] = {}
    with SortedLines(folder.parent) as lines:
        for line in _old(target, same) if same else ():
            lines.add(line)
        meter.phase("files", len(fresh))
        for count, name in enumerate(fresh):
            meter.at(count, name)
            try:
                for line in _lines(folder / name, name):
                    lines.add(line)
            except (_DamagedFile, OSError) as error:
                damaged[name] = f"{name}: {error}"
        meter.at(len(fresh))
        rows = write_lines(target, lines)
    read = {name: stamp for name, stamp in now.items() if name not in damaged}
    atomic_write(state_file, json.dumps(read).encode())
    return Indexed(len(now), len(fresh), rows, tuple(damaged.values()))


def _files(folder: Path) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        for name in names:
            if name.endswith(_ENDINGS) and os.path.isfile(file := os.path.join(path, name)):
                yield os.path.relpath(file, folder)


def _stamp(path: Path) -> list[int]:
    with storage_errors(path):
        status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _known(state_file: Path) -> dict[str, list[int]]:
    try:
        value = json.loads(read_file(state_file))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _old(target: Path, same: set[str]) -> Iterator[bytes]:
    with storage_errors(target), open(target, "rb") as file:
        for line in file:
            if json.loads(line[line.index(b"{") :]).get("filename") in same:
                yield line.rstrip(b"\n")


def _lines(path: Path, name: str) -> Iterator[bytes]:
    """Yields the lines of a file up to the first damage, then raises _DamagedFile if anything is wrong with it."""
    with open(path, "rb") as file:
        records = Records(file, _look)
        for found in _paired(records, name):
            try:
                key = found.key or key_of(found.fields["url"])
            except UsageError:
                continue  # its URL cannot be queried
            yield f"{key} {found.stamp} {json.dumps(found.fields)}".encode("utf-8", "surrogatepass")
    framing = records.framing
    if framing.damage:
        raise _DamagedFile(framing.damage)
    for offsets, fault, done in (
        (framing.altered, "of wrong digest or length", "not indexed"),
        (framing.misstated, "with a wrong WARC-Block-Digest", "indexed"),
    ):
        if offsets:
            what = counted(len(offsets), "record")
            raise _DamagedFile(f"has {what} {fault}, the first at {min(offsets)}; {done}")


def _paired(records: Records[_Found], name: str) -> Iterator[_Found]:
    """Yields what was found in the records that get a row, under the key of the request that precedes or follows it.
    Raises _DamagedFile for a record that cannot be parsed."""
    request: _Found | None = None
    waiting: _Found | None = None
    is_paired = False
    try:
        for offset, length, found in records:
            if not found.fields:
                if waiting is not None and not is_paired and waiting.answers(found):
                    waiting, is_paired = waiting._replace(key=found.key), True
                else:
                    request = found
                continue
            if waiting is not None:
                yield waiting
            fields = {**found.fields, "length": str(length), "offset": str(offset), "filename": name}
            key = request.key if request is not None and found.answers(request) else None
            request, is_paired = None, key is not None
            waiting = found._replace(key=key or "", fields=fields)
    except _UNPARSABLE as error:
        if waiting is not None:
            yield waiting
        reason = ascii(str(error))[1 : _MAX_REASON + 1].rstrip("'")
        raise _DamagedFile(f"has a record that cannot be parsed, at {records.offset}: {reason}") from error
    if waiting is not None:
        yield waiting


def _look(line: bytes, header: Mapping[bytes, bytes], block: Block) -> _Found | None:
    """What the index needs of a record; None of one that it does not name. Raises _UNPARSABLE."""
    if not header:
        if line.startswith(b"filedesc:"):
            return None
        pairs = arc_headers(line.rstrip(b"\r\n"), "")
        header = {name.lower().encode(): value.encode("utf-8", "surrogateescape") for name, value in pairs}

    def text(name: bytes) -> str:
        return str(StatusAndHeadersParser.decode_header(header.get(name, b"")))

    kind, url, date = text(b"warc-type"), text(b"warc-target-uri").strip("<>").replace(" ", "%20"), text(b"warc-date")
    stream = _Lines(block, _HEAD)
    is_page = url.startswith(ArcWarcRecordLoader.HTTP_SCHEMES)
    is_http = is_page and block.left > 0
    if kind == "request" and url:
        return _Found(url + date, _posted(stream, url) if is_http else "", text(b"warc-concurrent-to"))
    if kind not in _KINDS or not url or (kind == "metadata" and is_page and any(map(header.get, _OF_ANOTHER))):
        return None
    http: StatusAndHeaders | None = None
    if kind in _WITH_HTTP and is_http:
        try:
            http = _RESPONSE.parse(stream)
        except EOFError:
            if kind != "revisit":
                raise
    digest = text(b"warc-payload-digest")
    if not digest:
        sha1 = hashlib.sha1(usedforsecurity=False)
        while data := stream.read(_PIECE):
            sha1.update(data)
        digest = "sha1:" + base64.b32encode(sha1.digest()).decode("ascii")
    mime = text(b"content-type") if http is None else http.get_header("Content-Type") or ""
    mime = "warc/revisit" if kind == "revisit" else re.split(r"[;\s]", mime.strip(), maxsplit=1)[0] or "unk"
    status = http.get_statuscode() if http is not None else ""
    fields = {"url": url, "mime": mime, **({"status": status} if status.isdecimal() else {}), "digest": digest}
    return _Found(url + date, "", text(b"warc-record-id"), of_date(date).ljust(14, "0"), fields)


def _posted(stream: io.BufferedReader[Any], url: str) -> str:
    """The key of the response to a request, "" if that is the key of its URL. Like pywb's, that to HEAD has its own: it
    has no payload."""
    if stream.peek(4).startswith(b"GET "):
        return ""
    http = _REQUEST.parse(stream)
    if http.protocol in ("", "GET"):
        return ""
    headers = tuple((str(name), str(value)) for name, value in http.headers)
    try:
        if http.protocol == "HEAD":
            return key_of_method(url, "HEAD", "")
        return key_of_request(url, Asked(http.protocol, headers, PostedBody(io.BytesIO(stream.read(_MAX_POSTED)))))
    except UsageError:
        return ""  # its URL cannot be queried
