"""Suspects: contents that are probably not the intended ones (a soft 404, a login page); and the robots tags of files.

Suspect contents are stored and marked (design, section 5); nothing is lost or refused because of the mark.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import Obi, Version
from archec.ids import host_of
from archec.text.sniff import is_page_instead_of_pdf
from archec.web.outcome import Hop

_PASSWORD = re.compile(rb"""<input\b[^>]*\btype\s*=\s*["']?password\b""", re.I)
_META = re.compile(rb"""<meta\b[^>]*\bname\s*=\s*["']?(?:robots|archec)\b[^>]*>""", re.I)
_CONTENT = re.compile(rb"""\bcontent\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*))""", re.I)
_TAG = "noarchive"
MANY = 5
"""Number of URLs of a host with the same body from which that body is suspect."""
SHARED = "the same as under other URLs of the host"
_LOOKED_AT = 10 * MANY
"""Number of URLs with the same body read from the catalogue: enough to find others behind a chain of redirects."""
_REMEMBERED = 2000
"""Number of bodies kept in memory: more than a batch has."""


def suspicion(fobi: Obi, version: Version, state: str | None) -> str:
    """Why a new version is suspect compared to the one held now, or held last; empty if it is not."""
    if version.size == 0:
        return "empty"
    before = fobi.versions.get(state) if state is not None else fobi.newest
    if before is not None and is_page_instead_of_pdf(before.type, version.type):
        return "page instead of PDF"
    return ""


def is_login_page(page: bytes) -> bool:
    """Whether a page asks for a password."""
    return _PASSWORD.search(page) is not None


def tags_of(hop: Hop) -> str:
    """``noarchive`` if X-Robots-Tag contains it, else empty. Directives for other robots are ignored."""
    name = ""
    for part in hop.header("x-robots-tag").lower().split(","):
        robot, colon, rest = part.partition(":")
        if colon and not robot.strip().startswith(("max-", "unavailable_after")):
            name, part = robot.strip(), rest
        if part.strip() == _TAG and name in ("", "archec"):
            return _TAG
    return ""


def tags_in(page: bytes) -> str:
    """``noarchive`` if a robots tag of a page contains it, else empty."""
    contents = (b"".join(match.groups(b"")) for meta in _META.findall(page) for match in _CONTENT.finditer(meta))
    tagged = any(_TAG in content.decode("latin-1").lower().replace(",", " ").split() for content in contents)
    return _TAG if tagged else ""


class SharedBodies:
    """The URLs of a host with the same body, in this run and, according to the catalogue, in earlier ones.

    The targets of other URLs do not count: all URLs of a chain of redirects have the same body.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._known: OrderedDict[tuple[str, str], set[str]] = OrderedDict()
        self._new: set[str] = set()

    def expect(self, hops: Iterable[Hop]) -> None:
        """Asks the catalogue for all of these bodies at once, just before they are noted."""
        bodies = {hop.sha256 for hop in hops if hop.sha256}
        self._new = bodies - self._catalogue.held_bodies(bodies) if bodies else bodies

    def others(self, url: str, sha256: str, target: str) -> set[str]:
        """Up to :data:`MANY` other URLs of the host with the same body. Remembers this URL instead of the ``target``
        that it redirects to, if any."""
        key = host_of(url), sha256
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = set() if sha256 in self._new else self._earlier(*key)
            self._new.discard(sha256)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)  # visits of an entry that is dropped are already committed
        known.discard(target)
        found = known - {url}
        if len(known) <= MANY:
            known.add(url)
        return found

    def _earlier(self, host: str, sha256: str) -> set[str]:
        found = self._catalogue.sharing(host, sha256, _LOOKED_AT)
        fobis = self._catalogue.obis("fobi", found).values() if len(found) > 1 else ()
        notes = (fobi.notes.get(tist) for fobi in fobis for tist, state in fobi.history if state == sha256)
        targets = {note.target for note in notes if note is not None}
        return {*[url for url in found if url not in targets][:MANY]}

    def marks(self, urls: Iterable[str], sha256: str, run: int) -> Iterator[ObiChange]:
        """Records that mark this body as suspect under URLs that stored it before there were so many."""
        for fobi in self._catalogue.obis("fobi", sorted(urls)).values():
            tist, state = fobi.history.entry_at(run) or (0, None)
            note = fobi.notes.get(tist)
            if state == sha256 and note is not None and not note.suspect:
                notes = {tist: replace(note, suspect=SHARED)}
                yield ObiChange("fobi", fobi.id, put={tist: state}, notes=notes)
