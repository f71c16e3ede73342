"""Requests with a body: the key under which they are indexed, and raw requests that are the body of a request.

The key is that of the URL with the method and the body as further arguments, as pywb and cdxj-indexer make it.
"""

from __future__ import annotations

import base64
import json
import re
from email.parser import BytesParser
from email.policy import HTTP
from typing import NamedTuple
from urllib.parse import urlencode

from archec.access.bodies import Body
from archec.access.query import key_of
from archec.access.record import parse_headers
from archec.errors import UsageError

_MAX_QUERY = 4096
_MAX_HEAD = 1 << 18
_MAX_KEYED = 4 << 20
"""Bytes of the beginning of a body of which a key is made."""
_MAX_PARTS = 1 << 16
"""The same of a form in parts, whose reading takes long; a key has room for less."""
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE = re.compile(r"([A-Z]{1,20}) (\S+)(?: HTTP/[0-9.]+)?")


class Asked(NamedTuple):
    """A request that is to be looked up, or done: its method, headers and body."""

    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: Body | None = None

    def header(self, name: str) -> str:
        """The first header of a name (in lower case), "" if there is none."""
        return next((value for key, value in self.headers if key.lower() == name), "")


def parse_request(data: Body) -> Asked:
    """A raw request: its line (with or without the HTTP version), headers, an empty line, a body. Raises UsageError."""
    start = data.first(_MAX_HEAD)
    end = _END_OF_HEAD.search(start)
    head = start[: end.start()] if end is not None else start
    first, _, rest = head.partition(b"\n")
    match = _REQUEST_LINE.fullmatch(first.strip().decode("latin-1"))
    if match is None or (end is None and data.size > _MAX_HEAD):
        raise UsageError("the body is no request such as 'GET /'")
    body = data.behind(end.end()) if end is not None else None
    return Asked(match[1], tuple(parse_headers(rest)), body)


def key_of_request(url: str, asked: Asked) -> str:
    """The key of a request: of GET and HEAD that of the URL. Raises UsageError."""
    if asked.method in ("GET", "HEAD") or not url:
        return ""
    return key_of(url_of_request(url, asked))


def url_of_request(url: str, asked: Asked) -> str:
    """A URL with the method and the body of a request as further arguments."""
    mark = "&" if "?" in url else "?"
    return f"{url}{mark}__wb_method={asked.method}&{_as_query(asked)}"[: len(url) + _MAX_QUERY]


def _as_query(asked: Asked) -> str:
    mime = asked.header("content-type").partition(";")[0].strip().lower()
    body = asked.body.first(_MAX_KEYED) if asked.body is not None else b""
    try:
        if mime in ("", "application/x-www-form-urlencoded"):
            return body.decode("utf-8")
        if mime == "multipart/form-data":
            return _multipart(asked.header("content-type"), body)
        if mime.endswith("json") or mime.startswith("text/plain"):
            return urlencode(_flat(json.loads(body)))
    except (UnicodeDecodeError, ValueError, RecursionError):
        pass  # it is not what it says: then its bytes count
    return "__wb_post_data=" + base64.b64encode(body).decode("ascii")


def _multipart(content_type: str, body: bytes) -> str:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = BytesParser(policy=HTTP).parsebytes(head + body[:_MAX_PARTS])
    fields: list[tuple[str, str]] = []
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        if name:
            payload = part.get_payload(decode=True)
            fields.append((str(name), payload.decode("utf-8") if isinstance(payload, bytes) else ""))
    return urlencode(fields)


def _flat(value: object) -> list[tuple[str, str]]:
    """The leaves of JSON by the name they stand under; a name that comes again is numbered."""
    found: list[tuple[str, str]] = []
    counts: dict[str, int] = {}

    def walk(item: object, name: str) -> None:
        if isinstance(item, dict):
            for key, inner in item.items():
                walk(inner, str(key))
        elif isinstance(item, list):
            for inner in item:
                walk(inner, name)
        elif name and len(found) < _MAX_QUERY:
            counts[name] = counts.get(name, 0) + 1
            shown = name if counts[name] == 1 else f"{name}.{counts[name]}_"
            found.append((shown, item if isinstance(item, str) else json.dumps(item)))

    walk(value, "")
    return found
