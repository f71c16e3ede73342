"""What became of a visit to a file: one vocabulary everywhere (design, section 5)."""

from __future__ import annotations

from enum import Enum

__all__ = ["Outcome", "of_status"]


class Outcome(str, Enum):
    """The outcome of a visit.

    The fetcher states the failures and ``not-modified``; what a body means (new, changed, same,
    cosmetic) and how a chain of redirects ends is decided by who asked for it.
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
    BLOCKED_ADDRESS = "blocked-address"
    REDIRECT_LOOP = "redirect-loop"
    TOO_MANY_REDIRECTS = "too-many-redirects"
    TRUNCATED = "truncated"

    def __str__(self) -> str:
        return self.value

    @property
    def may_pass(self) -> bool:
        """Whether the fault may be over in a moment, so that trying again in this run makes sense."""
        return self in _MAY_PASS

    @property
    def blames_host(self) -> bool:
        """Whether the fault counts towards giving the host up for this run (``fetch.host_failures``)."""
        return self in _MAY_PASS


_MAY_PASS = frozenset({Outcome.SERVER_ERROR, Outcome.UNREACHABLE, Outcome.TIMEOUT, Outcome.TRUNCATED})

_STATUS = {
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
    """The failure an HTTP status states; None for 2xx with a body, and for redirects and 304.

    404 and 410 are ``gone``, the only evidence that counts towards a loss. 408, 421, 425, 429 and 5xx
    may pass. 407 comes from a proxy and says nothing of the file. Every other 4xx is ``forbidden``:
    the server understood and will not serve this request, and the same request gets the same answer.
    206 was not asked for, so the body is a part: ``truncated``. Statuses outside 200 to 499 are the
    server's error.
    """
    if status == 206:
        return Outcome.TRUNCATED
    if 200 <= status < 400:
        return None
    if 400 <= status < 500:
        return _STATUS.get(status, Outcome.FORBIDDEN)
    return Outcome.SERVER_ERROR
