"""The outcomes of requests, and the mapping of HTTP statuses to them."""

from __future__ import annotations

from enum import Enum


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
