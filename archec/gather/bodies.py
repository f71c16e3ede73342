"""Bodies: what lies in the obi store under a run's tist, on its way or left there by a run that was killed; and which
are those of many URLs of a host: hardly what these are for (a soft 404, a login page)."""

from __future__ import annotations

import os
import re
from collections import OrderedDict

from archec.archive.commit import CommitItem
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Version
from archec.digest import Digests
from archec.errors import CorruptArchive, NotHeld
from archec.gather.visits import Effect, VisitResult
from archec.ids import host_of
from archec.store.interface import HardLink, Link, Placement
from archec.store.layout import Layout
from archec.store.reader import digest
from archec.text.sniff import HTML, decoded_head, sniff
from archec.web.task import Hop

_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9._:-]{1,40})""", re.I)
_HEAD = 4096
_PAGE = 1 << 16
"""Bytes of a page that are looked through for signs."""
_PASSWORD = re.compile(rb"""<input\b[^>]*\btype\s*=\s*["']?password\b""", re.I)
_META = re.compile(rb"""<meta\b[^>]*\bname\s*=\s*["']?(?:robots|archec)\b[^>]*>""", re.I)
_CONTENT = re.compile(rb"""\bcontent\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*))""", re.I)
_TAG = "noarchive"
_CHUNK = 1 << 20
MANY = 5
"""So many URLs of a host with the same body are suspect."""
_REMEMBERED = 50_000


def declared(kind: str, content_type: str) -> str:
    """A media type with the charset that the server named, if it did."""
    match = _CHARSET.search(content_type)
    return f"{kind}; charset={match[1]}" if match else kind


def tags_of(hop: Hop) -> str:
    """What X-Robots-Tag says of keeping a file: ``noarchive`` or nothing. A directive for another robot is none."""
    name = ""
    for part in hop.header("x-robots-tag").lower().split(","):
        robot, colon, rest = part.partition(":")
        if colon and not robot.strip().startswith(("max-", "unavailable_after")):
            name, part = robot.strip(), rest
        if part.strip() == _TAG and name in ("", "archec"):
            return _TAG
    return ""


class Bodies:
    """Looks at bodies in the store. An *orphan* has its name, and no journal knows of it."""

    def __init__(self, layout: Layout, run: int, *, resumed: bool) -> None:
        self._layout, self._run, self._resumed = layout, run, resumed

    def orphan(self, hop: Hop) -> Hop | None:
        """Bytes that a killed run placed and did not journal: they stay, and are taken for its own.

        A name that leads nowhere (a redirect whose target a power failure took) will lead somewhere again
        when the target has been fetched.
        """
        if not self._resumed or not os.path.lexists(self._path(self._layout.path(self._run, hop.url))):
            return None
        try:
            found = digest(self._layout, self._run, hop.url)
        except (NotHeld, CorruptArchive):
            return None
        return hop._replace(md5=found.md5, sha256=found.sha256, size=found.size, temp="")

    def left(self, hop: Hop) -> Hop | None:
        """A hop of a killed run with its body as it was left, temporary or placed; None if that is not whole."""
        if hop.kind != "body":
            return hop
        try:
            digests = Digests()
            with open(self._path(hop.temp), "rb") as file:
                while data := file.read(_CHUNK):
                    digests.update(data)
        except OSError:
            found = self.orphan(hop)
            return found if found is not None and found.sha256 == hop.sha256 else None
        return hop if digests.sha256 == hop.sha256 else None

    def own(self, hop: Hop, version: Version) -> VisitResult | None:
        """What a killed run placed as a URL's own body before the URL began to redirect to ``version``, if it did."""
        held = self.orphan(hop)
        if held is None or held.sha256 == version.sha256:
            return None
        found = Version(held.sha256, held.md5, held.size, None, self.kind(held))
        return VisitResult(held, version=found, drop_validators=True)

    def kind(self, hop: Hop) -> str:
        """The media type of a body by its first bytes."""
        if not hop.size:
            return hop.content_type or "application/octet-stream"
        encoding = hop.header("content-encoding")
        if hop.head and hop.temp:
            return sniff(hop.head, hop.content_type, encoding)
        with open(self._path(hop.temp or self._layout.path(self._run, hop.url)), "rb") as file:
            return sniff(file.read(_HEAD), hop.content_type, encoding)

    def signs(self, hop: Hop, kind: str) -> tuple[str, str]:
        """What a page says of itself: why it may not be what was meant (a login page), and its robots tags."""
        if kind not in HTML or not hop.temp:
            return "", ""
        with open(self._path(hop.temp), "rb") as file:
            page = decoded_head(file.read(_PAGE), hop.header("content-encoding"))
        contents = (b"".join(match.groups(b"")) for meta in _META.findall(page) for match in _CONTENT.finditer(meta))
        tagged = any(_TAG in content.decode("latin-1").lower().replace(",", " ").split() for content in contents)
        return "login page" if _PASSWORD.search(page) else "", _TAG if tagged else ""

    def item(self, effect: Effect, seen: VisitResult) -> CommitItem:
        """A visit's record with what must be on the disk before it: a body, a link to one, or an orphan."""
        record, hop = effect.record, seen.hop
        if not effect.keep:
            return CommitItem(record)
        if seen.target and seen.place is not None:
            return CommitItem(record, links=(Link(self._run, record.id, *seen.place),))
        if hop.temp:
            return CommitItem(record, Placement(hop.temp, self._run, record.id, hop.sha256))
        return CommitItem(record, restated=(HardLink(self._run, record.id, self._run, record.id),))

    def _path(self, relative: str) -> str:
        return os.path.join(self._layout.root, relative)


class SharedBodies:
    """Which URLs of a host have the same body: of this run and, by the catalogue, of earlier ones."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._known: OrderedDict[tuple[str, str], set[str]] = OrderedDict()

    def others(self, url: str, sha256: str) -> set[str]:
        """Up to :data:`MANY` other URLs of the host with the same body; this one is remembered."""
        key = host_of(url), sha256
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = set(self._catalogue.sharing(*key, MANY))
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        found = known - {url}
        if len(known) <= MANY:
            known.add(url)
        return found
