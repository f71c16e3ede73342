"""The files of an archive: those that its templates mention, or mentioned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi
from archec.ids import archive_of

MOST_WORKS = 10
"""Maximum number of works listed for one file: some URLs occur in thousands of templates."""
_MOST_REFERRING = 10_000
"""Maximum number of templates of a file that are searched for one of the selected archive."""


def naming(catalogue: Catalogue, urls: Sequence[str]) -> dict[str, list[Obi]]:
    """The first templates that mention or mentioned each file, one more than :data:`MOST_WORKS` if there are more."""
    return catalogue.referring(urls, MOST_WORKS + 1)


def named_by(archive: str, url: str, named: Mapping[str, Sequence[Obi]], catalogue: Catalogue) -> bool:
    """Whether a template of an archive mentions or mentioned a file; ``named`` is the result of :func:`naming` for
    it."""
    tobis = named.get(url, [])
    if any(archive_of(tobi.id) == archive for tobi in tobis):
        return True
    if len(tobis) <= MOST_WORKS:
        return False
    every = catalogue.referring([url], _MOST_REFERRING).get(url, [])
    return any(archive_of(tobi.id) == archive for tobi in every)
