"""Visits: the effect of a hop on a fobi's history. :mod:`archec.gather.due` says when it is due again.

Pure rules of design section 5.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import AT_ONCE, Note, Obi, Version, Visit
from archec.config import Config
from archec.gather.due import next_due
from archec.gather.options import RunTime
from archec.gather.suspects import suspicion
from archec.web.headers import TLS_FIELD, http_date
from archec.web.outcome import Hop

_COMPRESSED = re.compile(r"([-;:]|--)(gzip|br|deflate|zstd)$")


class VisitResult(Struct, frozen=True):
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


class Effect(Struct, frozen=True):
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
    template mentions it any more. Losses are not decided here: see :func:`archec.archive.file_loss.loss_of`."""
    state, version, before, keep = fobi.history.at(at.run), seen.version, fobi.visit, False
    held = fobi.versions.get(state) if state is not None else None
    message = seen.message or seen.hop.message
    if seen.outcome:
        outcome = seen.outcome
    elif version is None:
        outcome, message = "server-error", "304 for a file that is not held"
    elif state == version.sha256:
        outcome = "cosmetic" if seen.cosmetic else "not-modified" if seen.unchanged else "same"
    elif state is None:
        outcome, keep = "new", True
    elif held is not None and held.text is not None and held.text == version.text:
        outcome, keep = "cosmetic", config.store_cosmetic
    else:
        outcome, keep = "changed", True
    visit = Visit(
        at.run,
        outcome,
        status=seen.hop.status,
        target=seen.target,
        message=message[:500],
        unnamed=(before.unnamed if before is not None else 0) + 1 if unnamed else 0,
        tags=seen.tags,
        clock=at.clock,
        tls=seen.hop.header(TLS_FIELD),
    )
    if seen.outcome or version is None:
        return _failed(config, fobi, seen, visit)
    return _held(config, fobi, seen, visit, version, state, keep=keep)


def _held(
    config: Config, fobi: Obi, seen: VisitResult, visit: Visit, version: Version, state: str | None, *, keep: bool
) -> Effect:
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
    if not keep:
        due = next_due(config, visit, max(fobi.history.noted, default=None), lost=False)
        kept = fobi.versions.get(state) if state is not None else None
        entry = fobi.history.entry_at(run)
        place = (entry[0], fobi.id) if entry is not None and kept is not None else seen.place
        return Effect(ObiChange("fobi", fobi.id, visit=visit, due=due), False, kept or version, place)
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
