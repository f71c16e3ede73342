"""The outcomes of requests: the mapping of HTTP statuses to them, and the errors of requests that get no response, or
not all of it.

::

    WebError                     unreachable
     +-- ConnectError            unreachable      no name, no route, refused, TLS failed, a proxy refuses
     |    +-- Blocked            blocked-address  the guard refuses the address
     |    +-- Denied             denied           fetch.deny has the address
     |    +-- Distrusted         bad-certificate  the certificate does not verify
     +-- TimedOut                timeout
     |    +-- NotConnected       timeout          no connection in time
     +-- ReadError               unreachable      closed or reset before a response
     |    +-- Truncated          truncated        closed or reset within a body, or a wrong length
     |    +-- TooLarge           too-large        exceeds one of our limits
     +-- ProtocolError           server-error     not HTTP, or larger than our limits
     +-- BadUrl                  bad-url
     +-- Internal                internal         this machine is out of a resource
"""

from __future__ import annotations

import errno
import os
import re
from enum import Enum

from archec.errors import OUT_OF_RESOURCES, TOO_MANY_FILES, ArchecError
from archec.ids import without_userinfo

_MAX_MESSAGE = 300
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Outcome(str, Enum):
    """The outcome of a visit to a file.

    The fetcher states failures and ``not-modified``. The caller decides what a body means (new, changed, same,
    cosmetic) and how a chain of redirects ends.
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
    """Denied by the configuration (``fetch.deny``)."""
    REDIRECT_LOOP = "redirect-loop"
    TOO_MANY_REDIRECTS = "too-many-redirects"
    TRUNCATED = "truncated"
    DOUBTFUL = "doubtful"
    """The response may belong to another request. The result does not count."""
    INTERNAL = "internal"
    """A local error: processes were lost, or this machine is out of a resource. Never counts against the host."""

    def __str__(self) -> str:
        return self.value

    @property
    def is_transient(self) -> bool:
        """Whether a retry in this run may succeed. Such failures also count against the host."""
        return self in _TRANSIENT


_TRANSIENT = frozenset({Outcome.SERVER_ERROR, Outcome.UNREACHABLE, Outcome.TIMEOUT, Outcome.TRUNCATED})

BUSY = frozenset({429, 503})
"""Statuses of an overloaded host, whose Retry-After is obeyed."""

_OUTCOME_OF_STATUS = {
    404: Outcome.GONE,
    407: Outcome.UNREACHABLE,
    408: Outcome.SERVER_ERROR,
    410: Outcome.GONE,
    421: Outcome.SERVER_ERROR,
    425: Outcome.SERVER_ERROR,
    429: Outcome.SERVER_ERROR,
}


def of_status(status: int) -> Outcome | None:
    """The failure that an HTTP status states. None for 2xx except 206, for redirects and for 304.

    404 and 410 are ``gone``, the only evidence that counts towards a loss. 408, 421, 425, 429 and 5xx are transient.
    407 comes from a proxy and says nothing about the file. All other 4xx are ``forbidden``: the server understood the
    request and will refuse it again. 206 was not requested, so the body is only a part: ``truncated``. A status outside
    200 to 499 is the server's error.
    """
    if status == 206:
        return Outcome.TRUNCATED
    if 200 <= status < 400:
        return None
    if 400 <= status < 500:
        return _OUTCOME_OF_STATUS.get(status, Outcome.FORBIDDEN)
    return Outcome.SERVER_ERROR


class WebError(ArchecError):
    """A request failed because of the server, the network, or its URL. Its message is fit for reports. ``lasting``: a
    retry in this run would fail, too."""

    outcome = Outcome.UNREACHABLE
    lasting = False

    def __init__(self, message: str) -> None:
        super().__init__(_UNPRINTABLE.sub(" ", without_userinfo(message))[:_MAX_MESSAGE])


class ConnectError(WebError):
    """There is no connection to the host."""


class Blocked(ConnectError):
    """The guard does not allow connections to the address of the host."""

    outcome, lasting = Outcome.BLOCKED_ADDRESS, True


class Denied(ConnectError):
    """The configuration denies connections to the host or its address."""

    outcome, lasting = Outcome.DENIED, True


class Distrusted(ConnectError):
    """The server's certificate does not verify."""

    outcome, lasting = Outcome.BAD_CERTIFICATE, True


class TimedOut(WebError):
    outcome = Outcome.TIMEOUT


class NotConnected(TimedOut):
    """There is no connection to the host in time."""


class ReadError(WebError):
    """The connection ended before a response."""


class Truncated(ReadError):
    """A body is shorter or longer than stated."""

    outcome = Outcome.TRUNCATED


class TooLarge(ReadError):
    """A body is larger than its limit."""

    outcome, lasting = Outcome.TOO_LARGE, True


class ProtocolError(WebError):
    """The server violates HTTP."""

    outcome = Outcome.SERVER_ERROR


class BadUrl(WebError):
    """The request cannot be sent because of its URL or headers."""

    outcome, lasting = Outcome.BAD_URL, True


class Internal(WebError):
    """A local error: this machine cannot open a connection to anyone."""

    outcome = Outcome.INTERNAL


OURS = OUT_OF_RESOURCES | {errno.ENOBUFS, errno.EADDRNOTAVAIL}
"""System errors of this machine when it connects, not of the other end."""


def internal(error: OSError) -> Internal:
    """The exception for one of ``OURS``."""
    hint = "; see 'ulimit -n'" if error.errno in TOO_MANY_FILES else ""
    return Internal(f"this machine cannot open another connection: {os.strerror(error.errno or 0)}{hint}")
