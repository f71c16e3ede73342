"""One HTTP request to the access layer, and the forms of its responses."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import cached_property
from typing import IO, cast
from urllib.parse import quote

from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope

from archec.access.errors import Refused, SourceFailed
from archec.access.posts import PostedBody
from archec.access.query import Arguments, arguments
from archec.errors import UsageError
from archec.server.requests import BodyRefused, read_body
from archec.server.responses import PIECE

JSON = "application/json"
HTML = "text/html; charset=utf-8"
_MAX_HEADER = 4000
_IN_MEMORY = 1 << 20
_IN_URIS = "!#$%&'()*+,/:;=?@[]~"
_HOST = re.compile(r"([\w.~%!$&'()*+,;=:-]*@)?([\w.~%-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?", re.ASCII)
"""pywb sends user and password of a URL in this header, too, and needs them in the links that it follows."""
_UNPRINTABLE = re.compile("[^ -~]")
_NOT_IN_URIS = re.compile("[^!#-;=?-Z\\[\\]_a-z~]")


def client_of(scope: Scope) -> str:
    """The address of the client of a request, or ""."""
    client = scope.get("client")
    return str(client[0]) if client else ""


class Exchange:
    """A request. Its body is kept until :meth:`close`."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope, self.receive = scope, receive
        self.method: str = scope["method"]
        self.path: str = (scope.get("raw_path") or scope["path"].encode("utf-8")).partition(b"?")[0].decode("latin-1")
        """The path as it was sent, not unescaped."""
        self.headers: dict[str, str] = {}
        """Headers by lower-case name. Repeated headers are joined with commas."""
        for name, value in scope["headers"]:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text
        self._body: IO[bytes] | None = None
        self.note: dict[str, str] = {}
        """Fields for the audit log."""

    @property
    def query_string(self) -> str:
        return bytes(self.scope["query_string"]).decode("latin-1")

    @cached_property
    def take(self) -> Arguments:
        """The parameters by name. Raises UsageError."""
        return arguments(self.scope["query_string"])

    @property
    def base(self) -> str:
        """Scheme and host of the request. Raises UsageError for an invalid host."""
        host = self.headers.get("host") or "localhost"
        if not _HOST.fullmatch(host):
            raise UsageError("the Host header is invalid")
        return f"{self.scope['scheme']}://{host}"

    async def body(self, limit: int, timeout: float) -> PostedBody:
        """Reads the body, which is kept until the exchange is closed. Raises Refused if :func:`read_body` refuses it,
        or if the disk is full."""
        file = self._body = cast(IO[bytes], tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - see close()
        close = (("Connection", "close"),)
        try:
            await read_body(self.receive, limit, timeout, file.write)
        except BodyRefused as refusal:
            raise Refused(refusal.http_status, refusal.message, close) from None
        except OSError as error:
            raise Refused(503, f"the body cannot be kept: {error.strerror}", close) from error
        return PostedBody(file)

    def close(self) -> None:
        if self._body is not None:
            self._body.close()


def answer(status: int, body: bytes | str, media_type: str, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """Returns a response with a small body."""
    response = Response(body, status)
    for name, value in (("Content-Type", media_type), *headers):
        response.raw_headers.append((name.lower().encode("latin-1"), _UNPRINTABLE.sub("?", value).encode("latin-1")))
    return response


def message(status: int, text: str, errors: Mapping[str, str], headers: Iterable[tuple[str, str]] = ()) -> Response:
    """Returns an error response in JSON. ``errors`` are those of sources; they are also sent in the header
    ``ResErrors``."""
    value = {"message": text, **({"errors": dict(errors)} if errors else {})}
    return answer(status, json.dumps(value) + "\n", JSON, [*headers, *errors_of(errors)])


def errors_of(errors: Mapping[str, str]) -> list[tuple[str, str]]:
    """The header ``ResErrors`` if there are errors of sources, shortened if they are too long for a header."""
    if not errors:
        return []
    text = json.dumps(dict(errors))
    if len(text) > _MAX_HEADER:
        text = json.dumps({name[:60]: reason[:100] for name, reason in list(errors.items())[:8]})
    return [("ResErrors", text)]


def as_uri(url: str) -> str:
    """Escapes a URL for a link or a header: every character that the grammar of URIs does not allow."""
    return quote(url, safe=_IN_URIS, errors="surrogateescape") if _NOT_IN_URIS.search(url) else url


def chunked(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Joins parts of a body to chunks of at least PIECE bytes, except for the last one."""
    waiting = bytearray()
    for part in parts:
        waiting += part
        if len(waiting) >= PIECE:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


async def in_thread(chunks: Iterator[bytes], errors: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Yields the rest of a body, which is generated in a thread while it is sent, so that memory stays flat for slow
    clients, too. Raises SourceFailed if a source has failed meanwhile, so that nobody takes a part for the whole."""
    known = dict(errors)
    while (chunk := await to_thread.run_sync(next, chunks, None)) is not None:
        yield chunk
    if errors != known:
        raise SourceFailed(f"a source failed while it was read: {json.dumps(dict(errors))}")
