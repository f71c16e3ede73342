"""The errors of the access layer and their HTTP statuses."""

from __future__ import annotations

from collections.abc import Mapping

from archec.errors import ArchecError

CHALLENGE = (
    ("WWW-Authenticate", 'Bearer realm="archec"'),
    ("WWW-Authenticate", 'Basic realm="archec", charset="UTF-8"'),
)


class SourceFailed(ArchecError):
    """A source cannot answer, or a record cannot be loaded; the other sources, or the next rows, still can. The message
    is for the client: it contains no path and no address."""

    http_status = 503


class NotInTime(SourceFailed):
    """The server of a source timed out, or sent more than is waited for: it is not asked again for the same request."""


class NotThere(SourceFailed):
    """A place does not have what another place may have, without being at fault."""


class MayBlock(Exception):
    """What was to be read at once may take longer than switching to a thread."""


class Refused(ArchecError):
    """A request that is refused, with a status, a message for the client, and headers. ``errors`` has the messages of
    sources that failed."""

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
    """The refusal of a client without a valid token. It is the same whatever was requested."""
    return Refused(401, "A valid token is needed", CHALLENGE)
