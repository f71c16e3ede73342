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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed
from warcio.limitreader import LimitReader
from warcio.statusandheaders import StatusAndHeadersParserException

from archec.access.feeding import write_lines
from archec.access.posts import Asked, Body, key_of_request
from archec.access.query import key_of
from archec.access.stamps import of_date
from archec.errors import UsageError
from archec.progress import Meter
from archec.store.durable import atomic_write, storage_errors
from archec.store.sorting import SortedLines
from archec.units import counted
from archec.warc.framing import Framing, framing_of

_ENDINGS = (".warc", ".warc.gz", ".arc", ".arc.gz")
_KINDS = ("response", "revisit", "resource", "metadata", "conversion")
_PIECE = 1 << 20
_MAX_POSTED = 4 << 20
_UNPARSABLE = (ArchiveLoadFailed, StatusAndHeadersParserException, EOFError, ValueError)
_MAX_REASON = 200
"""Characters of an error message, which may quote the file."""
_Waiting = tuple[str, str, str, dict[str, str]]
"""A response whose request may follow: the value that pairs the two, its key ("": that of its URL), time, and
fields."""


class _Damaged(Exception):
    """A file is damaged."""


class Indexed(NamedTuple):
    """The result of indexing: files in the directory, files read now, rows of the index, and messages about damaged
    files."""

    files: int
    read: int
    rows: int
    damaged: tuple[str, ...]


def index_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.cdxj")


def index_folder(folder: Path, meter: Meter) -> Indexed:
    """Creates or updates the index of a directory. Raises UsageError, StorageFailed, StorageFull."""
    folder = Path(os.path.abspath(folder))
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a directory")
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
            except (_Damaged, OSError) as error:
                damaged[name] = f"{name}: {error}"
        meter.at(len(fresh))
        rows = write_lines(target, lines)
    read = {name: stamp for name, stamp in now.items() if name not in damaged}
    atomic_write(state_file, json.dumps(read).encode())
    return Indexed(len(now), len(fresh), rows, tuple(damaged.values()))


def _files(folder: Path) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        for name in names:
            if name.endswith(_ENDINGS):
                yield os.path.relpath(os.path.join(path, name), folder)


def _stamp(path: Path) -> list[int]:
    with storage_errors(path):
        status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _known(state_file: Path) -> dict[str, list[int]]:
    try:
        value = json.loads(state_file.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _old(target: Path, same: set[str]) -> Iterator[bytes]:
    with storage_errors(target), open(target, "rb") as file:
        for line in file:
            if json.loads(line[line.index(b"{") :]).get("filename") in same:
                yield line.rstrip(b"\n")


def _lines(path: Path, name: str) -> Iterator[bytes]:
    """Yields the lines of a file up to the first damage, then raises _Damaged if anything is wrong with the file."""
    with open(path, "rb") as file:
        framing = framing_of(file)
        file.seek(0)
        members = ArchiveIterator(LimitReader(file, framing.end), arc2warc=True)
        for _, key, stamp, fields in _whole(members, framing, name):
            try:
                key = key or key_of(fields["url"])
            except UsageError:
                continue  # its URL cannot be queried
            yield f"{key} {stamp} {json.dumps(fields)}".encode("utf-8", "surrogatepass")
    if framing.damage:
        raise _Damaged(framing.damage)
    if framing.altered:
        count, first = len(framing.altered), min(framing.altered)
        raise _Damaged(f"has {counted(count, 'record')} of wrong digest or length, the first at {first}; not indexed")
    if framing.misstated:
        count, first = len(framing.misstated), min(framing.misstated)
        raise _Damaged(f"has {counted(count, 'record')} with a wrong WARC-Block-Digest, the first at {first}; indexed")


def _whole(members: Any, framing: Framing, name: str) -> Iterator[_Waiting]:
    """Yields the rows of whole records. A response is indexed under the key of its request, which precedes or follows
    it. Raises _Damaged for a record that cannot be parsed."""
    request: tuple[str, str] | None = None
    waiting: _Waiting | None = None
    try:
        for record in members:
            uri = (record.rec_headers.get_header("WARC-Target-URI") or "").strip("<>")
            if record.rec_type == "request" and uri:
                request = _posted(record, uri)
                if waiting is not None and request is not None and waiting[0] == request[0]:
                    waiting = (waiting[0], request[1], *waiting[2:])
                continue
            if waiting is not None:
                yield waiting
                waiting = None
            if record.rec_type not in _KINDS or not uri:
                continue
            fields = _fields(record, uri)
            offset = members.get_record_offset()  # reads the record to its end
            if offset in framing.altered:
                continue
            fields |= {"length": str(members.get_record_length()), "offset": str(offset), "filename": name}
            pair = _pair(record)
            key = request[1] if request is not None and request[0] == pair else ""
            waiting = (pair, key, of_date(record.rec_headers.get_header("WARC-Date") or "").ljust(14, "0"), fields)
    except _UNPARSABLE as error:
        if waiting is not None:
            yield waiting
        reason = ascii(str(error))[1 : _MAX_REASON + 1].rstrip("'")
        raise _Damaged(f"has a record that cannot be parsed, before {members.fh.tell()}: {reason}") from error
    if waiting is not None:
        yield waiting


def _fields(record: Any, uri: str) -> dict[str, str]:
    digest = record.rec_headers.get_header("WARC-Payload-Digest") or ""
    if not digest:
        sha1 = hashlib.sha1(usedforsecurity=False)
        while data := record.raw_stream.read(_PIECE):
            sha1.update(data)
        digest = "sha1:" + base64.b32encode(sha1.digest()).decode("ascii")
    if record.rec_type == "revisit":
        mime = "warc/revisit"
    elif record.http_headers is not None:
        mime = _mime(record.http_headers)
    else:
        mime = _mime(record.rec_headers)
    status = record.http_headers.get_statuscode() if record.http_headers is not None else ""
    return {"url": uri, "mime": mime, **({"status": status} if status.isdecimal() else {}), "digest": digest}


def _mime(headers: Any) -> str:
    return re.split(r"[;\s]", (headers.get_header("Content-Type") or "").strip(), maxsplit=1)[0] or "unk"


def _pair(record: Any) -> str:
    """A value that is the same for a request and its response."""
    return str(record.rec_headers.get_header("WARC-Target-URI")) + str(record.rec_headers.get_header("WARC-Date"))


def _posted(record: Any, uri: str) -> tuple[str, str] | None:
    """The value that pairs a request with its response, and the key of the response. None if that is the key of its
    URL."""
    method = record.http_headers.protocol if record.http_headers is not None else ""
    if method in ("", "GET", "HEAD"):
        return None
    headers = tuple((str(name), str(value)) for name, value in record.http_headers.headers)
    body = Body(io.BytesIO(record.raw_stream.read(_MAX_POSTED)))
    try:
        return _pair(record), key_of_request(uri, Asked(method, headers, body))
    except UsageError:
        return None  # its URL cannot be queried
