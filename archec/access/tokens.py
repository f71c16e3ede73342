"""Tokens: their rights and collections. Stored as hashes in a file that only its owner may read.

Tokens are long and random, so SHA-256 is as good as a slow hash. Hashes are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from archec.access.index_files import Stamp, stamp_of
from archec.catalogue.engines import sqlite_path
from archec.config import Config
from archec.errors import ConfigError, UsageError, unreadable
from archec.files import read_file
from archec.tist import iso

Right = Literal["metadata", "content", "live", "write"]
RIGHTS: tuple[Right, ...] = ("metadata", "content", "live", "write")

_PREFIX = "archec_"
_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,100}")


class Token(Struct, frozen=True, forbid_unknown_fields=True):
    """A token, identified by the hash of its text. Without ``collections`` it is valid for all. ``until`` is the tist
    at which it expires, 0 for never."""

    name: str
    hash: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    rights: tuple[Right, ...]
    collections: tuple[str, ...] = ()
    until: int = 0
    created: int = 0

    def allows(self, right: Right) -> bool:
        """Whether it has a right. ``content`` implies ``metadata``."""
        return right in self.rights or (right == "metadata" and "content" in self.rights)

    def opens(self, collection: str) -> bool:
        """Whether it is valid for this collection."""
        return not self.collections or collection in self.collections

    def is_valid(self, now: float) -> bool:
        return not self.until or now < self.until


class TokenFile:
    """The token file. It is read again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: Stamp | None = None
        self._tokens: tuple[Token, ...] = ()

    def find(self, text: str) -> Token | None:
        """Returns the valid token with this text, or None. Raises ConfigError if the file cannot be read."""
        given = hash_of(text)
        found: Token | None = None
        for token in self.tokens():
            if hmac.compare_digest(token.hash, given):
                found = token
        return found if found is not None and found.is_valid(time.time()) else None

    def holds(self, token: Token) -> bool:
        """Whether a token is still in the file, unchanged, and has not expired."""
        return token in self.tokens() and token.is_valid(time.time())

    def tokens(self) -> tuple[Token, ...]:
        """All tokens, or none if there is no file. Raises ConfigError."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            self._stamp, self._tokens = None, ()
            return ()
        except OSError as error:
            raise unreadable(self.path, error) from error
        if status.st_mode & 0o077:
            raise ConfigError(f"{self.path}: is readable by others", hint=f"chmod 600 {self.path}")
        stamp = stamp_of(status)
        if stamp != self._stamp:
            self._tokens, self._stamp = _read(self.path), stamp
        return self._tokens


def token_path(config: Config) -> Path:
    """The path of the token file. Raises ConfigError if it is inside the archive, of which copies are handed out, or
    that of the catalogue."""
    path = config.path(config.access.tokens)
    if not config.access.tokens:
        raise ConfigError(f"{config.place('access.tokens')}: is empty", hint="set it to the path of the token file")
    real, store = (Path(os.path.realpath(one)) for one in (path, config.store_path))
    if store in (real, *real.parents):
        raise ConfigError(f"{config.place('access.tokens')}: {path} is in the archive", hint="use a place outside it")
    catalogue = sqlite_path(config.database, config.base) if config.database.startswith("sqlite:") else None
    if catalogue is not None and real == Path(os.path.realpath(catalogue)):
        raise ConfigError(f"{config.place('access.tokens')}: {path} is the catalogue", hint="use another file")
    return path


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def new_token(
    known: Iterable[Token], name: str, rights: Iterable[str], collections: Iterable[str], until: int
) -> tuple[str, Token]:
    """Creates a token and returns its text, which is stored nowhere, and the token. Raises UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid name for a token", hint="use letters, digits and . _ @ + -")
    if any(token.name == name for token in known):
        raise UsageError(f"there is already a token {name}", hint="revoke it first, or use another name")
    chosen = tuple(right for right in RIGHTS if right in set(rights))
    unknown = set(rights) - set(RIGHTS)
    if unknown or not chosen:
        raise UsageError(f"unknown right {', '.join(sorted(unknown)) or 'none'}", hint=f"rights: {', '.join(RIGHTS)}")
    now = int(time.time())
    if until and until <= now:
        raise UsageError(f"{iso(until)} is in the past: the token would never be valid", hint="give a later time")
    text = _PREFIX + secrets.token_urlsafe(32)
    return text, Token(name, hash_of(text), chosen, tuple(collections), until, now)


def encoded(tokens: Iterable[Token]) -> bytes:
    return msgspec.json.format(msgspec.json.encode({"version": 1, "tokens": list(tokens)}), indent=1) + b"\n"


class _Contents(Struct, frozen=True):
    version: Literal[1]
    tokens: tuple[Token, ...]


def _read(path: Path) -> tuple[Token, ...]:
    try:
        return msgspec.json.decode(read_file(path), type=_Contents).tokens
    except OSError as error:
        raise unreadable(path, error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not a token file: {error}") from error
