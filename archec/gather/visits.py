"""Visits: the effect of a hop on a fobi's history, and when it is due again (design, section 5).

Suspects are contents that are probably not the intended ones (a soft 404, a login page). They are stored and marked;
nothing is lost or refused because of the mark.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from archec.archive.absence import is_lost
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import AT_ONCE, Note, Obi, Version, Visit
from archec.catalogue.records import ObiChange
from archec.config import Config
from archec.gather.options import RunTime
from archec.ids import host_of
from archec.text.sniff import is_page_instead_of_pdf
from archec.web.headers import TLS_FIELD, http_date
from archec.web.task import Hop

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

    def others(self, url: str, sha256: str, target: str) -> set[str]:
        """Up to :data:`MANY` other URLs of the host with the same body. Remembers this URL instead of the ``target``
        that it redirects to, if any."""
        key = host_of(url), sha256
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._earlier(*key)
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


_DAY = 86400
_HELD = frozenset({"new", "changed", "same", "not-modified", "cosmetic"})
_REFUSED = frozenset({"forbidden", "robots", "too-large", "bad-url", "bad-certificate", "blocked-address", "denied"})
_COMPRESSED = re.compile(r"([-;:]|--)(gzip|br|deflate|zstd)$")


class VisitResult(NamedTuple):
    """The result of a visit to a URL.

    ``outcome`` is set for a failure and empty if the contents are known; then ``version`` describes them.
    ``unchanged``: the server answered 304. ``cosmetic``: ``version`` is what is held instead of the server's bytes,
    which have the same text. ``target`` is the id that the URL redirected to; ``place`` is the (tist, id)
    under which the contents are already held, or None for a body that is still to be stored. ``drop_validators``: the
    stored body does not belong to these headers. ``hops``: number of redirects from the URL to the contents.
    ``suspect`` says why the contents may not be the intended ones; ``tags`` are the robots tags.
    """

    hop: Hop
    outcome: str = ""
    version: Version | None = None
    unchanged: bool = False
    cosmetic: bool = False
    target: str = ""
    place: tuple[int, str] | None = None
    message: str = ""
    drop_validators: bool = False
    hops: int = 0
    suspect: str = ""
    tags: str = ""


class Effect(NamedTuple):
    """The record of a visit, and whether its contents are to be stored under the run's tist.

    ``hops`` and ``deferred`` are those of the visit, for URLs that redirect here.
    """

    record: ObiChange
    keep: bool
    version: Version | None
    place: tuple[int, str] | None
    hops: int = 0
    deferred: bool = False

    @property
    def visit(self) -> Visit:
        return self.record.visit or Visit(0, "")


def visit_for(config: Config, fobi: Obi, seen: VisitResult, at: RunTime, *, unnamed: bool = False) -> Effect:
    """The effect of a visit on a fobi: its outcome, its incidence, if any, and when it is due again. ``unnamed``: no
    template mentions it any more. Losses are not decided here: see :func:`archec.archive.absence.loss_of`."""
    state = fobi.history.at(at.run)
    before = fobi.visit
    first = Visit(
        at.run,
        seen.outcome,
        status=seen.hop.status,
        target=seen.target,
        message=(seen.message or seen.hop.message)[:500],
        unnamed=(before.unnamed if before is not None else 0) + 1 if unnamed else 0,
        tags=seen.tags,
        clock=at.clock,
        tls=seen.hop.header(TLS_FIELD),
    )
    if seen.outcome:
        return _failed(config, fobi, seen, first)
    version = seen.version
    if version is None:
        outcome = "server-error"
        return _failed(config, fobi, seen, replace(first, outcome=outcome, message="304 for a file that is not held"))
    if state == version.sha256:
        outcome = "cosmetic" if seen.cosmetic else "not-modified" if seen.unchanged else "same"
        return _held(config, fobi, seen, replace(first, outcome=outcome), keep=False)
    if state is None:
        return _held(config, fobi, seen, replace(first, outcome="new"), keep=True)
    held = fobi.versions.get(state)
    if held is not None and held.text is not None and held.text == version.text:
        return _held(config, fobi, seen, replace(first, outcome="cosmetic"), keep=config.store_cosmetic)
    return _held(config, fobi, seen, replace(first, outcome="changed"), keep=True)


def _held(config: Config, fobi: Obi, seen: VisitResult, visit: Visit, *, keep: bool) -> Effect:
    before, hop, run = fobi.visit, seen.hop, visit.tist
    validators = not seen.drop_validators and not seen.target
    etag = hop.header("etag") if validators else ""
    modified = hop.header("last-modified") if validators else ""
    read, tags = visit.when, visit.tags
    if seen.unchanged and not keep and before is not None:
        read, tags = before.read, tags or before.tags
        if validators:
            etag, modified = etag or before.etag, modified or before.modified
    cosmetic = visit.outcome == "cosmetic" and not keep
    visit = replace(visit, etag=etag, modified=modified, checked=run, read=read, tags=tags, cosmetic=cosmetic)
    version = seen.version
    state = fobi.history.at(run)
    if not keep:
        due = next_due(config, visit, max(fobi.history.noted, default=None), lost=False)
        kept = fobi.versions.get(state) if state is not None else None
        entry = fobi.history.entry_at(run)
        place = (entry[0], fobi.id) if entry is not None and kept is not None else seen.place
        return Effect(ObiChange("fobi", fobi.id, visit=visit, due=due), False, kept or version, place)
    if version is None:
        raise ValueError(f"{fobi.id}: nothing to store")
    due = next_due(config, visit, run, lost=False)
    suspect = suspicion(fobi, version, state) or seen.suspect
    kind = "returned" if state is None and len(fobi.history) else visit.outcome
    note = Note(run, kind, status=hop.status, target=seen.target, headers=hop.headers, suspect=suspect)
    record = ObiChange(
        "fobi", fobi.id, put={run: version.sha256}, version=version, notes={run: note}, visit=visit, due=due
    )
    return Effect(record, True, version, (run, fobi.id))


def _failed(config: Config, fobi: Obi, seen: VisitResult, visit: Visit) -> Effect:
    deferred = seen.hop.deferred
    visit = visit.following(fobi.visit, failed=not deferred)
    due = next_due(config, visit, None, lost=not fobi.history.held, deferred=deferred)
    return Effect(ObiChange("fobi", fobi.id, visit=visit, due=due), False, None, None)


def doubtful(fobi: Obi, why: str) -> ObiChange:
    """The record for a fobi whose last visit may have received the answer to another request. What was noted is
    dropped, the visit does not count towards a loss, and the fobi is due immediately."""
    run = fobi.visit.tist if fobi.visit is not None else 0
    drop = tuple(tist for tist, note in fobi.notes.items() if note.run == run)
    visit = Visit(run, "doubtful", message=why[:500])
    return ObiChange("fobi", fobi.id, drop=drop, visit=visit, due=AT_ONCE)


def next_due(config: Config, visit: Visit, last_noted: int | None, *, lost: bool, deferred: bool = False) -> int:
    """When the visited fobi is due again, in Unix seconds by the clock.

    New and changed files are due after ``revisit_min``, unchanged ones after half the time for which they
    have not changed, between ``revisit_min`` and ``revisit_max``, and gone ones when their loss can be
    confirmed. Faults have a back-off that begins at one day, refusals one that begins at
    ``revisit_min``. ``deferred`` files are due in the next run. A file that no template mentions any more is visited
    half as often after each visit, up to ``revisit_max``.
    """
    shortest, longest = int(config.fetch.revisit_min), int(config.fetch.revisit_max)
    outcome = visit.outcome
    if deferred:
        return visit.when + 1
    if outcome == "gone" and not (lost or is_lost(config, visit)):
        if visit.gone < config.lost_confirmations:
            wait = int(config.lost_grace)
        else:
            wait = visit.gone_when + int(config.lost_grace) - visit.when
        return visit.when + max(wait, 1)
    if outcome in ("new", "changed"):
        wait = shortest
    elif outcome in _HELD:
        unchanged = visit.tist - last_noted if last_noted is not None else 0
        wait = max(shortest, min(longest, unchanged // 2))
    else:
        first = shortest if outcome in _REFUSED or outcome == "gone" else min(_DAY, shortest)
        wait = min(longest, max(first, 1) << min(max(visit.fails - 1, 0), 12))
    if visit.unnamed:
        wait = min(longest, max(wait, 1) << min(visit.unnamed, 12))
    return visit.when + max(wait, 1)


def contradicts(hop: Hop, visit: Visit, version: Version) -> bool:
    """Whether a 304 contradicts what is held and so cannot be trusted.

    A ``Content-Length`` of 0, weak tags and tags that differ only by a compression suffix are not contradictions.
    """
    length = hop.header("content-length")
    if length.isascii() and length.isdecimal() and int(length[:18]) not in (0, version.size):
        return not hop.header("content-encoding")
    sent, known = hop.header("etag"), visit.etag
    if sent and known and not sent.startswith("W/") and not known.startswith("W/") and _bare(sent) != _bare(known):
        return True
    modified, before = http_date(hop.header("last-modified")), http_date(visit.modified)
    return modified is not None and before is not None and modified != before


def _bare(etag: str) -> str:
    return _COMPRESSED.sub("", etag.strip('"'))
