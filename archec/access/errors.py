"""What goes wrong, and how it is answered."""

from __future__ import annotations

from collections.abc import Mapping

from archec.errors import ArchecError

CHALLENGE = (
    ("WWW-Authenticate", 'Bearer realm="archec"'),
    ("WWW-Authenticate", 'Basic realm="archec", charset="UTF-8"'),
)


class SourceFailed(ArchecError):
    """A source cannot answer; the others can. The message is for the client: it names no path and no address."""

    http_status = 503


class LoadFailed(ArchecError):
    """A record cannot be loaded; the next row is tried."""

    http_status = 503


class NotInTime(LoadFailed):
    """The server of a source gave no answer in time: no other row of the source is tried."""


class Refused(ArchecError):
    """A request that gets no answer: its status, why (for the client), and headers. ``errors`` are the reasons of
    sources."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: tuple[tuple[str, str], ...] = (),
        errors: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.http_status = status
        self.headers = headers
        self.errors = errors or {}


def unauthorized() -> Refused:
    """The refusal of whoever has no valid token. It is the same whatever was requested."""
    return Refused(401, "A token is needed", CHALLENGE)
