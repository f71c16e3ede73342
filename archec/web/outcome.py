"""What became of a request: the vocabulary of outcomes, and the exceptions that lead to one of them.

The exceptions are httpx's, so that any httpx transport can be used, and some of our own::

    httpx.TransportError
     +-- ConnectError            unreachable      no name, no route, refused, TLS failed
     |    +-- Blocked            blocked-address  the guard refuses the address
     |    +-- Denied             denied           fetch.deny has the address
     |    +-- Distrusted         bad-certificate  the certificate does not verify
     +-- ConnectTimeout, ...     timeout
     +-- ReadError               unreachable      closed or reset before an answer
     |    +-- Truncated          truncated        closed or reset within a body, or a wrong length
     |    +-- TooLarge           too-large        more than a limit of ours
     +-- RemoteProtocolError     server-error     not HTTP, or larger than our limits
     +-- ProxyError              unreachable      the proxy refuses or is not there
     +-- UnsupportedProtocol     bad-url
     +-- Internal                internal         this machine is out of something
"""

from __future__ import annotations

import errno
import os
import re
from enum import Enum
from typing import NamedTuple

import httpx

from archec.ids import without_userinfo

_MAX_MESSAGE = 300
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Outcome(str, Enum):
    """The outcome of a visit to a file.

    The fetcher states the failures and ``not-modified``; what a body means (new, changed, same,
    cosmetic) and how a chain of redirects ends is decided by the caller.
    """

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    NOT_MODIFIED = "not-modified"
    COSMETIC = "cosmetic"
    GONE = "gone"
    FORBIDDEN = "forbidden"
    SERVER_ERROR = "server-error"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TOO_LARGE = "too-large"
    ROBOTS = "robots"
    BAD_URL = "bad-url"
    BAD_CERTIFICATE = "bad-certificate"
    BLOCKED_ADDRESS = "blocked-address"
    DENIED = "denied"
    """The operator's configuration (``fetch.deny``) says not to."""
    REDIRECT_LOOP = "redirect-loop"
    TOO_MANY_REDIRECTS = "too-many-redirects"
    TRUNCATED = "truncated"
    DOUBTFUL = "doubtful"
    """An answer that may have been one to another request; what came of it does not count."""
    INTERNAL = "internal"
    """A fault of ours: processes were lost, or this machine is out of something. Never held against the host."""

    def __str__(self) -> str:
        return self.value

    @property
    def is_transient(self) -> bool:
        """Whether another try in this run may succeed; such failures also count against the host."""
        return self in _TRANSIENT


_TRANSIENT = frozenset({Outcome.SERVER_ERROR, Outcome.UNREACHABLE, Outcome.TIMEOUT, Outcome.TRUNCATED})

_OUTCOME_OF_STATUS = {
    401: Outcome.FORBIDDEN,
    402: Outcome.FORBIDDEN,
    403: Outcome.FORBIDDEN,
    404: Outcome.GONE,
    407: Outcome.UNREACHABLE,
    408: Outcome.SERVER_ERROR,
    410: Outcome.GONE,
    421: Outcome.SERVER_ERROR,
    425: Outcome.SERVER_ERROR,
    429: Outcome.SERVER_ERROR,
    451: Outcome.FORBIDDEN,
}


def of_status(status: int) -> Outcome | None:
    """The failure that an HTTP status states; None for 2xx with a body, for redirects and for 304.

    404 and 410 are ``gone``, the only evidence that counts towards a loss. 408, 421, 425, 429 and 5xx
    are transient. 407 comes from a proxy and says nothing about the file. Every other 4xx is ``forbidden``:
    the server understood the request and will refuse it again. 206 was not asked for, so the body is only a
    part: ``truncated``. A status outside 200 to 499 is the server's error.
    """
    if status == 206:
        return Outcome.TRUNCATED
    if 200 <= status < 400:
        return None
    if 400 <= status < 500:
        return _OUTCOME_OF_STATUS.get(status, Outcome.FORBIDDEN)
    return Outcome.SERVER_ERROR


class Blocked(httpx.ConnectError):
    """The guard does not allow connections to the host's address."""


class Denied(httpx.ConnectError):
    """The operator's configuration says not to connect to the host's address."""


class Distrusted(httpx.ConnectError):
    """The server's certificate does not verify."""


class Internal(httpx.TransportError):
    """This machine cannot make a connection, whatever the other end does: a fault of ours."""


class Truncated(httpx.ReadError):
    """A body ended before its end, or went on after it."""


class TooLarge(httpx.ReadError):
    """A body is larger than its limit."""


class Fault(NamedTuple):
    """The outcome of a request without an answer; ``lasting``: another try in this run would fail too."""

    outcome: Outcome
    message: str
    lasting: bool


EXPECTED = (httpx.RequestError, httpx.InvalidURL, httpx.StreamError)
"""Everything that is raised because of what a server or a network does."""

OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Errors of the system that say something about this machine, and nothing about the other end."""


def internal(error: OSError) -> Internal:
    """The exception for one of ``OURS``."""
    hint = "; see 'ulimit -n'" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
    return Internal(f"this machine makes no further connection: {os.strerror(error.errno or 0)}{hint}")


_FAULTS: tuple[tuple[type[Exception], Outcome, bool], ...] = (
    (Blocked, Outcome.BLOCKED_ADDRESS, True),
    (Denied, Outcome.DENIED, True),
    (Distrusted, Outcome.BAD_CERTIFICATE, True),
    (Internal, Outcome.INTERNAL, False),
    (Truncated, Outcome.TRUNCATED, False),
    (TooLarge, Outcome.TOO_LARGE, True),
    (httpx.TimeoutException, Outcome.TIMEOUT, False),
    (httpx.RemoteProtocolError, Outcome.SERVER_ERROR, False),
    (httpx.UnsupportedProtocol, Outcome.BAD_URL, True),
    (httpx.LocalProtocolError, Outcome.BAD_URL, True),
    (httpx.InvalidURL, Outcome.BAD_URL, True),
    (httpx.TransportError, Outcome.UNREACHABLE, False),
    (httpx.StreamError, Outcome.TRUNCATED, False),
    (httpx.TooManyRedirects, Outcome.TOO_MANY_REDIRECTS, True),
    (httpx.DecodingError, Outcome.SERVER_ERROR, False),
)


def fault_of(error: Exception) -> Fault:
    """The outcome that one of ``EXPECTED`` stands for, with a message fit for a report."""
    text = _UNPRINTABLE.sub(" ", without_userinfo(str(error)))[:_MAX_MESSAGE] or type(error).__name__
    for kind, outcome, lasting in _FAULTS:
        if isinstance(error, kind):
            return Fault(outcome, text, lasting)
    return Fault(Outcome.UNREACHABLE, text, False)
