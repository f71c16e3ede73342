"""The errors of requests that get no response, or not all of it, and the outcome of each.

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

from archec.errors import ArchecError
from archec.ids import without_userinfo
from archec.web.outcome import Outcome

_MAX_MESSAGE = 300
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


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


OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""System errors of this machine, not of the other end."""


def internal(error: OSError) -> Internal:
    """The exception for one of ``OURS``."""
    hint = "; see 'ulimit -n'" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
    return Internal(f"this machine cannot open another connection: {os.strerror(error.errno or 0)}{hint}")
