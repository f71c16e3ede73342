"""Why a request got no answer: exceptions of the transports, and the outcome each of them means.

::

    httpx.TransportError
     +-- ConnectError            unreachable      no name, no route, refused, TLS failed
     |    +-- Blocked            blocked-address  the address may not be connected to
     |    +-- Distrusted         unreachable      a certificate that does not verify; not tried again
     +-- ConnectTimeout, ...     timeout
     +-- ReadError               unreachable      closed or reset before an answer
     |    +-- Truncated          truncated        closed or reset within a body, or a wrong length
     +-- RemoteProtocolError     server-error     what came is not HTTP, or breaks a bound of ours
     +-- ProxyError              unreachable      the proxy refuses or is not there
     +-- UnsupportedProtocol     bad-url
"""

from __future__ import annotations

import re
from typing import NamedTuple

import httpx

from archec.ids import without_userinfo
from archec.web.outcome import Outcome

__all__ = ["Blocked", "Distrusted", "Fault", "Truncated", "fault_of"]

_LONGEST = 300
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Blocked(httpx.ConnectError):
    """The address of the host may not be connected to (see ``guard``)."""


class Distrusted(httpx.ConnectError):
    """The server's certificate does not verify."""


class Truncated(httpx.ReadError):
    """A body ended before its end, or went on after it."""


class Fault(NamedTuple):
    """The outcome of a request that got no answer; ``lasting``: trying again in this run is vain."""

    outcome: Outcome
    message: str
    lasting: bool


_OUTCOMES: tuple[tuple[type[Exception], Outcome, bool], ...] = (
    (Blocked, Outcome.BLOCKED_ADDRESS, True),
    (Distrusted, Outcome.UNREACHABLE, True),
    (Truncated, Outcome.TRUNCATED, False),
    (httpx.TimeoutException, Outcome.TIMEOUT, False),
    (httpx.RemoteProtocolError, Outcome.SERVER_ERROR, False),
    (httpx.UnsupportedProtocol, Outcome.BAD_URL, True),
    (httpx.LocalProtocolError, Outcome.BAD_URL, True),
    (httpx.InvalidURL, Outcome.BAD_URL, True),
    (httpx.TransportError, Outcome.UNREACHABLE, False),
    (httpx.StreamError, Outcome.TRUNCATED, False),
)

EXPECTED = (httpx.TransportError, httpx.InvalidURL, httpx.StreamError)
"""All that a transport may raise for what a server or a network does."""


def fault_of(error: Exception) -> Fault:
    """The outcome that one of ``EXPECTED`` means, with a message fit for a report."""
    text = _UNPRINTABLE.sub(" ", without_userinfo(str(error)))[:_LONGEST] or type(error).__name__
    for kind, outcome, lasting in _OUTCOMES:
        if isinstance(error, kind):
            return Fault(outcome, text, lasting)
    return Fault(Outcome.UNREACHABLE, text, False)
