"""What goes into the fetcher and what comes out of it: a task is one request, a hop its answer."""

from __future__ import annotations

from typing import Literal, NamedTuple

from archec.web.outcome import Outcome

__all__ = ["HEAD", "Hop", "HopKind", "Task", "failure"]

HEAD = 1536
"""So many bytes of a body come with its hop, for who wants to know what it is."""

HopKind = Literal["body", "redirect", "not-modified", "failed"]


class Task(NamedTuple):
    """One request to make.

    ``url`` is a normalised URL; ``etag`` and ``last_modified`` are validators of an earlier visit (the
    request is conditional where one is given); a smaller ``rank`` goes first within its host.
    """

    url: str
    etag: str = ""
    last_modified: str = ""
    rank: int = 0


class Hop(NamedTuple):
    """What one task came to. Redirects are not followed: ``location`` says where to.

    ``kind`` is ``body`` (``temp``, ``md5``, ``xxh3``, ``size`` are set; the caller owns the temporary
    file from then on), ``redirect``, ``not-modified`` or ``failed`` (``outcome`` and ``message`` say
    why). ``outcome`` is None for a body and a redirect: what they mean is the caller's to decide.
    ``deferred``: the host was given up for this run, nothing was learnt about this file.
    No user name or password appears in any field.
    """

    url: str
    kind: HopKind
    outcome: Outcome | None = None
    status: int = 0
    """HTTP status of the answer, 0 where there was none; for ftp the status that comes nearest."""
    headers: tuple[tuple[str, str], ...] = ()
    """The headers worth keeping, names in lower case, values cleaned and bounded (``headers.KEPT``)."""
    location: str = ""
    """Absolute, not normalised, without user information."""
    temp: str = ""
    md5: str = ""
    xxh3: str = ""
    size: int = 0
    """Bytes of the entity body as served after transfer coding."""
    content_type: str = ""
    message: str = ""
    """For people: what went wrong."""
    address: str = ""
    """The address that was connected to: the server's, or the proxy's."""
    elapsed: float = 0.0
    """Seconds of the last attempt, from its start to the last byte."""
    deferred: bool = False
    head: bytes = b""
    """The first :data:`HEAD` bytes of a body, where they were at hand."""

    def header(self, name: str) -> str:
        """The first kept header of this lower-case name, or ``""``."""
        for key, value in self.headers:
            if key == name:
                return value
        return ""


def failure(url: str, outcome: Outcome, message: str, *, deferred: bool = False) -> Hop:
    """A failed hop of a task that got no answer."""
    return Hop(url, "failed", outcome, message=message, deferred=deferred)
