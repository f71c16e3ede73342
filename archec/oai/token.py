"""Resumption tokens: stateless, signed, bound to their request, expiring.

A token contains all that is needed to continue a list: the request, the position in the list, and the end of the list
as of the first request. So it survives restarts, works in every process with the same secret, and always returns the
same page. Tokens cannot be made or altered without the secret.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import orjson

from archec.errors import ConfigError, unreadable
from archec.files import read_file
from archec.store.durable import write_once

ENVIRONMENT = "ARCHEC_OAI_SECRET"
_MIN_SECRET = 16
"""Minimum length in bytes."""
_NEW = "move it away: a new one is created, and the tokens of harvests in progress become invalid"
_TAG = 16
"""Length in bytes to which the HMAC-SHA-256 is truncated."""
_VERSION = 1
_MAX_TEXT = 8192
"""Maximum length in characters; longer tokens are refused unread."""


class ResumptionToken(NamedTuple):
    """A position in a list.

    ``prefix``, ``set`` and the tists ``start`` and ``end`` are those of the first request, with ``end`` at most its
    time. The list continues after ``key`` (for lists of items, at ``stamp``). ``size`` is the length of the whole list,
    ``cursor`` the number of items listed so far, ``expires`` the tist from which the token is invalid, ``generation``
    the index to which it belongs.
    """

    verb: str
    prefix: str = ""
    set: str = ""
    start: int = 0
    end: int = 0
    stamp: int = 0
    key: str = ""
    size: int = 0
    cursor: int = 0
    expires: int = 0
    generation: str = ""


class Tokens:
    """Makes and reads tokens with one secret, for one repository."""

    def __init__(self, secret: bytes, repository: str) -> None:
        self._key = hmac.digest(secret, b"archec oai " + repository.encode(), sha256)

    def write(self, token: ResumptionToken) -> str:
        """A token as text: letters, digits, ``-`` and ``_``."""
        body = orjson.dumps([_VERSION, *token])
        return base64.urlsafe_b64encode(self._tag(body) + body).decode("ascii").rstrip("=")

    def read(self, text: str, now: float) -> ResumptionToken | None:
        """The token in a text; None if it is not one of ours, was altered, or has expired."""
        if len(text) > _MAX_TEXT or not text.isascii():
            return None
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        tag, body = data[:_TAG], data[_TAG:]
        if not hmac.compare_digest(tag, self._tag(body)):
            return None
        version, *values = orjson.loads(body)
        if version != _VERSION:
            return None
        token = ResumptionToken(*values)
        # Only the text that write() gives: base64 has several for the same bytes.
        return token if now < token.expires and self.write(token) == text else None

    def _tag(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, sha256)[:_TAG]


def load_secret(path: Path, given: str | None) -> bytes:
    """The secret: ``given`` (from the environment), else the contents of ``path``, which is created if missing.

    Raises :class:`ConfigError` for one that is too short or cannot be read, :class:`archec.errors.StorageFailed` if it
    cannot be kept.
    """
    if given:
        return _checked(given.encode("utf-8", "surrogateescape"), f"${ENVIRONMENT}")
    if not os.path.lexists(path):
        write_once(path, secrets.token_hex(32).encode() + b"\n", mode=0o600)  # only one of two that start at once
    try:
        return _checked(read_file(path).strip(), str(path), _NEW)
    except OSError as error:
        failed = unreadable(path, error)
        failed.hint = failed.hint or _NEW
        raise failed from error


def _checked(secret: bytes, where: str, hint: str = "") -> bytes:
    if len(secret) < _MIN_SECRET:
        raise ConfigError(f"{where}: the secret is shorter than {_MIN_SECRET} bytes", hint=hint)
    return secret
