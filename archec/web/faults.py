"""The exceptions of requests that get no response, and the outcome of each.

The exceptions are httpx's and some of our own::

    httpx.TransportError
     +-- ConnectError            unreachable      no name, no route, refused, TLS failed
     |    +-- Blocked            blocked-address  the guard refuses the address
     |    +-- Denied             denied           fetch.deny has the address
     |    +-- Distrusted         bad-certificate  the certificate does not verify
     +-- ConnectTimeout, ...     timeout
     +-- ReadError               unreachable      closed or reset before a response
     |    +-- Truncated          truncated        closed or reset within a body, or a wrong length
     |    +-- TooLarge           too-large        exceeds one of our limits
     +-- RemoteProtocolError     server-error     not HTTP, or larger than our limits
     +-- ProxyError              unreachable      the proxy refuses or is unavailable
     +-- UnsupportedProtocol     bad-url
     +-- Internal                internal         this machine is out of a resource
"""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

import httpx

from archec.ids import without_userinfo
from archec.web.outcome import Outcome

_MAX_MESSAGE = 300
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Blocked(httpx.ConnectError):
    """The guard does not allow connections to the address of the host."""


class Denied(httpx.ConnectError):
    """The configuration denies connections to the host or its address."""


class Distrusted(httpx.ConnectError):
    """The server's certificate does not verify."""


class Internal(httpx.TransportError):
    """A local error: this machine cannot open a connection to anyone."""


class Truncated(httpx.ReadError):
    """A body is shorter or longer than stated."""


class TooLarge(httpx.ReadError):
    """A body is larger than its limit."""


class Fault(NamedTuple):
    """The outcome of a request without a response. ``lasting``: a retry in this run would fail, too."""

    outcome: Outcome
    message: str
    lasting: bool


EXPECTED = (httpx.RequestError, httpx.InvalidURL, httpx.StreamError)
"""All exceptions caused by a server or the network."""

OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""System errors of this machine, not of the other end."""


def internal(error: OSError) -> Internal:
    """The exception for one of ``OURS``."""
    hint = "; see 'ulimit -n'" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
    return Internal(f"this machine cannot open another connection: {os.strerror(error.errno or 0)}{hint}")


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
    """Maps an instance of ``EXPECTED`` to its outcome and a message fit for reports."""
    text = _UNPRINTABLE.sub(" ", without_userinfo(str(error)))[:_MAX_MESSAGE] or type(error).__name__
    for kind, outcome, lasting in _FAULTS:
        if isinstance(error, kind):
            return Fault(outcome, text, lasting)
    return Fault(Outcome.UNREACHABLE, text, False)
