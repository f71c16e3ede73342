"""Ids of filesets: ``fileset:PLATFORM:DOMAIN:WORK``, where WORK is the platform's id of all versions.

In each part every byte of UTF-8 outside ``A-Z a-z 0-9 - . _ ~`` is escaped, except ``:`` and ``/`` in WORK. A version
follows the id as ``@VERSION``, and is not a part of it.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from archec.errors import BadName
from archec.ids.names import MAX_ID

_PREFIX = "fileset:"


class FilesetId(NamedTuple):
    """The parts of an id; ``version`` is that of the platform, empty if none is given."""

    platform: str
    domain: str
    work: str
    version: str = ""

    def __str__(self) -> str:
        parts = (quote(self.platform, safe="~"), quote(self.domain, safe="~"), quote(self.work, safe="~/:"))
        version = f"@{quote(self.version, safe='~')}" if self.version else ""
        return _PREFIX + ":".join(parts) + version

    @property
    def obi(self) -> str:
        """The id of the obi, which stands for all versions."""
        return str(self._replace(version=""))


def is_fileset(text: str) -> bool:
    """Whether ``text`` has the prefix of a fileset's id."""
    return text[: len(_PREFIX)].lower() == _PREFIX


def parse_fileset(text: str) -> FilesetId:
    """The parts of an id in any spelling. Raises BadName."""
    rest, at, version = text.strip().partition("@")
    parts = rest.split(":", 3)
    if not is_fileset(rest) or len(parts) != 4 or not all(parts[1:]) or (at and not version) or len(rest) > MAX_ID:
        raise BadName(
            f"{text[:200]!r} is not the id of a fileset", hint="the form is fileset:PLATFORM:DOMAIN:WORK[@VERSION]"
        )
    return FilesetId(unquote(parts[1]).lower(), unquote(parts[2]).lower(), unquote(parts[3]), unquote(version))
