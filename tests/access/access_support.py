"""Servers with collections, indexes to fill them with, and clients that hold a token."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from servers import running

from archec.access.build import opened_access
from archec.access.tokens import Token, encoded, hash_of
from archec.archive.opening import Archive
from archec.config import Config, parse
from archec.server.app import make_app
from archec.urlkey import urlkey

READER, WRITER, LISTER = "reader-token", "writer-token", "lister-token"


def configured(folder: Path, text: str) -> Config:
    """A configuration in a folder; the server takes any free port."""
    file = folder / "config.yaml"
    file.write_text(f"server: {{port: 0, access_log: ''}}\n{text}")
    return parse(file.read_text(), file)


def give_tokens(config: Config, *more: Token) -> None:
    """The tokens of the tests: one for reading, one for everything, one for metadata only."""
    tokens = (
        Token("reader", hash_of(READER), ("metadata", "content")),
        Token("writer", hash_of(WRITER), ("metadata", "content", "live", "write")),
        Token("lister", hash_of(LISTER), ("metadata",)),
    )
    path = config.path(config.access.tokens)
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name("new")
    temp.write_bytes(encoded([*tokens, *more]))
    temp.chmod(0o600)
    temp.rename(path)


@contextmanager
def serving(config: Config, archive: Archive | None = None) -> Iterator[str]:
    """The base URL of a server with the access layer."""
    with opened_access(config, archive) as access, running(make_app([access]), config.server) as port:
        yield f"http://127.0.0.1:{port}"


def client(base: str, token: str = READER) -> httpx.Client:
    """A client with a token."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=base, headers=headers, timeout=30, trust_env=False)


def line(url: str, stamp: str, **fields: Any) -> bytes:
    """A line of CDXJ."""
    values = {"url": url, "mime": "text/html", "status": "200", "digest": f"sha1:{stamp}", **fields}
    return f"{urlkey(url)} {stamp} {json.dumps(values)}".encode()


def write_index(path: Path, lines: Sequence[bytes]) -> Path:
    """An index file with these lines, sorted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(one + b"\n" for one in sorted(lines)))
    return path


def rows(text: str) -> list[dict[str, Any]]:
    """The rows of an answer in JSON."""
    return [json.loads(one) for one in text.splitlines()]
