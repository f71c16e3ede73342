"""Requests with a body: spooled bodies, the key under which such requests are indexed, and raw requests.

As in pywb, the key is that of the URL with method and body appended as arguments.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import IO, NamedTuple
from urllib.parse import unquote_plus, urlencode

from archec.access.index_files import lines_of
from archec.access.query import uri_of
from archec.access.record import HEADER_NAME, exactly, header, parse_headers, read_file
from archec.errors import UsageError
from archec.urlkey import urlkey

METHOD = "__wb_method="
"""The argument of a URL that names the method of a request."""
_MAX_QUERY = 4096
"""Characters of a body that become arguments. Escaped, one of them may take 12 characters in the body."""
_MAX_HEAD = 1 << 18
_MAX_KEYED = 4 << 20
"""Bytes of a body that are used for its key."""
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_EMPTY_LINE = re.compile(rb"(?:\A|\n)[ \t\r\f\v]*\n")
_LAST_END = re.compile(rb"\r?\n\Z")
_NOT_IN_KEYS = re.compile(r"[\r\n\t]|#.*|[ \f\v\r\n\t]+\Z", re.S)
"""Removed from arguments, as the URL parser of pywb does, although a body may contain it."""
_BOUNDARY = re.compile(r"[ -~]{0,200}[!-~]")
_PARAMETER = re.compile(r';\s*([^=;\s]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)')
_OF_CONNECTION = frozenset({
    "host", "content-length", "connection", "transfer-encoding", "accept-encoding", "expect", "keep-alive",
    "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade",
})  # fmt: skip
_LENGTH = re.compile("[0-9]{1,18}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_REQUEST_LINE = re.compile(r"([A-Z]{1,20}) (\S+)(?: HTTP/[0-9.]+)?")


class PostedBody:
    """The bytes of a file from ``begin`` on, at most ``most``. Not for concurrent use."""

    def __init__(self, file: IO[bytes] | None = None, begin: int = 0, most: int = sys.maxsize) -> None:
        self._file, self._begin = file or io.BytesIO(), begin
        self.size = min(self._file.seek(0, io.SEEK_END) - begin, most)

    def first(self, most: int) -> bytes:
        """The first ``most`` bytes, or fewer."""
        self._file.seek(self._begin)
        return self._file.read(min(most, self.size))

    def behind(self, size: int, most: int = sys.maxsize) -> PostedBody:
        return PostedBody(self._file, self._begin + size, most)

    def lines(self) -> Iterator[bytes]:
        self._file.seek(self._begin)
        return lines_of(self._file)

    def pieces(self) -> AsyncIterator[bytes]:
        self._file.seek(self._begin)
        return exactly(read_file(self._file), self.size)


class Asked(NamedTuple):
    """A request to look up or to send: its method, headers and body."""

    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: PostedBody | None = None

    def sent_headers(self) -> dict[str, str]:
        """The headers to send, without those of the connection. Repeated ones are joined."""
        found: dict[str, tuple[str, list[str]]] = {}
        for name, value in self.headers:
            if name.lower() not in _OF_CONNECTION:
                found.setdefault(name.lower(), (name, []))[1].append(value)
        return {name: ("; " if key == "cookie" else ", ").join(values) for key, (name, values) in found.items()}


def parse_request(data: PostedBody) -> Asked:
    """Parses a raw request: request line (the HTTP version is optional), headers, empty line, body. Raises
    UsageError."""
    start = data.first(_MAX_HEAD)
    end = _END_OF_HEAD.search(start)
    head = start[: end.start()] if end is not None else start
    first, _, rest = head.partition(b"\n")
    match = _REQUEST_LINE.fullmatch(first.strip().decode("latin-1"))
    if match is None or (end is None and data.size > _MAX_HEAD):
        raise UsageError("the body is not a request such as 'GET /'")
    headers = parse_headers(rest)
    for name, value in headers:
        if not HEADER_NAME.fullmatch(name) or _CONTROL.search(value):
            raise UsageError(f"the request in the body has an invalid header {name[:40]!r}")
    if header(headers, "transfer-encoding"):
        raise UsageError("the request in the body must not be chunked")
    length = header(headers, "content-length")
    most = int(length) if _LENGTH.fullmatch(length) else sys.maxsize
    return Asked(match[1], tuple(headers), data.behind(end.end(), most) if end is not None else None)


def key_of_request(url: str, asked: Asked) -> str:
    """The key of :func:`url_of_request`. Raises UsageError."""
    posted = url_of_request(url, asked)
    return urlkey(posted) if posted else ""


def url_of_request(url: str, asked: Asked) -> str:
    """The URL under which a request is indexed: with the method and for POST and PUT the body, appended as arguments.
    "" for GET and HEAD, which are under the URL alone. Raises UsageError."""
    if asked.method in ("GET", "HEAD") or not url:
        return ""
    return url_of_method(url, asked.method, _as_query(asked) if asked.method in ("POST", "PUT") else "")


def key_of_method(url: str, method: str, query: str) -> str:
    """The key of a URL with the method and, if there are any, the arguments of a body appended. Raises UsageError."""
    return urlkey(url_of_method(url, method, query))


def url_of_method(url: str, method: str, query: str) -> str:
    """The URL with the method and, if there are any, the arguments of a body appended. Raises UsageError."""
    uri = uri_of(url)
    arguments = f"{METHOD}{method}" + (f"&{query[:_MAX_QUERY]}" if query else "")
    return uri + ("&" if "?" in uri else "?") + _NOT_IN_KEYS.sub("", arguments)


def _as_query(asked: Asked) -> str:
    """The body of a request as arguments, depending on its media type. The fallback is its bytes in base64."""
    body = asked.body.first(_MAX_KEYED) if asked.body is not None else b""
    size = header(asked.headers, "content-length")
    if size:
        body = body[: int(size)] if _LENGTH.fullmatch(size) else b""
    kind = header(asked.headers, "content-type")
    mime = kind.lower()
    if not body:
        return ""
    try:
        if mime.startswith("application/x-www-form-urlencoded"):
            return unquote_plus(body.decode("utf-8")[: 12 * _MAX_QUERY])
        if mime.startswith("multipart/"):
            return urlencode(list(islice(_form_fields(kind, body), _MAX_QUERY)), doseq=True)
        if mime.startswith(("application/json", "text/plain")):
            return urlencode(_leaves(json.loads(body)))
    except (ValueError, OverflowError, RecursionError):  # the body does not match its media type
        if mime.startswith("application/json"):
            return ""
    return "__wb_post_data=" + base64.b64encode(body).decode("ascii")


def _form_fields(kind: str, body: bytes) -> Iterator[tuple[str, str | bytes]]:
    """Yields name and contents of each part of a form. Raises ValueError if the media type has no valid boundary."""
    boundary = _parameters(kind).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise ValueError("no boundary")
    delimiter = b"--" + re.escape(boundary.encode())
    parts = re.split(rb"(?:\A|(?<=\n))" + delimiter + rb"(--)?[ \t\r\f\v]*(?:\n|\Z)", body)
    for is_last, part in zip(parts[1::2], parts[2::2], strict=True):
        if is_last or not part:
            return
        head, value = [*_EMPTY_LINE.split(part, 1), b""][:2]
        headers = parse_headers(head[:_MAX_HEAD].decode("utf-8", "replace").encode())
        value = _LAST_END.sub(b"", value)
        given = _parameters(header(headers, "content-disposition"))
        yield given.get("name", "None"), value if "filename" in given else value.decode("utf-8", "replace")


def _parameters(text: str) -> dict[str, str]:
    """The parameters of a header, with unquoted values."""
    found: dict[str, str] = {}
    for name, value in _PARAMETER.findall(text):
        value = value.strip()
        if value[:1] == '"' and value[-1:] == '"' and len(value) > 1:
            value = value[1:-1].replace("\\\\", "\\").replace('\\"', '"')
        found[name.lower()] = value
    return found


def _leaves(value: object) -> dict[str, str]:
    """The leaves of a JSON value by their keys. Repeated keys are numbered."""
    found: dict[str, str] = {}
    counts: dict[str, int] = {}

    def walk(item: object, name: str) -> None:
        if isinstance(item, dict):
            for key, inner in item.items():
                walk(inner, key)
        elif isinstance(item, list):
            for inner in item:
                walk(inner, name)
        elif name and len(found) < _MAX_QUERY:
            shown = name
            if name in found:
                counts[name] = counts.get(name, 1) + 1
                shown = f"{name}.{counts[name]}_"
            found[shown] = _as_script(item)

    walk(value, "")
    return found


def _as_script(item: object) -> str:
    """A JSON value formatted as JavaScript does."""
    if item is None or isinstance(item, bool):
        return json.dumps(item)
    return str(int(item)) if isinstance(item, float) and math.modf(item)[0] == 0 else str(item)
