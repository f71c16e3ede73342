"""Visits: what a hop means for a fobi's history, when it is due again and when it is lost.

Pure rules of design section 5.
"""

from __future__ import annotations

from typing import NamedTuple

from archec.catalogue.model import Note, Obi, Version, Visit
from archec.catalogue.records import ObiChange
from archec.config import Config
from archec.gather.schedule import is_lost, next_due
from archec.text.sniff import is_page_instead_of_pdf
from archec.web.task import Hop


class VisitResult(NamedTuple):
    """What a visit to a URL came to.

    ``outcome`` is the vocabulary's word for a failure, or empty where the contents are known:
    then ``version`` describes them. ``unchanged``: the server said so (304). ``target`` is the id that
    the URL redirected to; ``place`` the (tist, id) under which the contents are held already, None
    for a body that is still to be stored. ``drop_validators``: the body kept is not the one that the
    headers speak of. ``hops``: how many redirects lead from the URL to the contents.
    """

    hop: Hop
    outcome: str = ""
    version: Version | None = None
    unchanged: bool = False
    target: str = ""
    place: tuple[int, str] | None = None
    message: str = ""
    drop_validators: bool = False
    hops: int = 0


class Effect(NamedTuple):
    """The record of a visit, and whether its contents are to be kept under the run's tist.

    ``hops`` and ``deferred`` are those of the visit, for whoever redirects here.
    """

    record: ObiChange
    outcome: str
    keep: bool
    version: Version | None
    place: tuple[int, str] | None
    hops: int = 0
    deferred: bool = False

    @property
    def status(self) -> int:
        """The HTTP status of the visit."""
        return self.record.visit.status if self.record.visit is not None else 0


def visit_for(config: Config, fobi: Obi, seen: VisitResult, run: int) -> Effect:
    """What a visit does to a fobi: its outcome, its incidence if it is one, when it is due again."""
    state = fobi.history.at(run)
    if seen.outcome:
        return _failed(config, fobi, seen, run)
    version = seen.version
    if seen.unchanged and state is not None and version is not None and version.sha256 == state:
        return _held(config, fobi, seen, run, "not-modified", keep=False)
    if version is None:
        return _failed(config, fobi, seen._replace(outcome="server-error", message="304 for what is not held"), run)
    if state == version.sha256:
        return _held(config, fobi, seen, run, "not-modified" if seen.unchanged else "same", keep=False)
    if state is None:
        return _held(config, fobi, seen, run, "new", keep=True)
    before = fobi.versions.get(state)
    same_text = before is not None and before.text is not None and before.text == version.text
    if same_text:
        return _held(config, fobi, seen, run, "cosmetic", keep=config.store_cosmetic)
    return _held(config, fobi, seen, run, "changed", keep=True)


def _held(config: Config, fobi: Obi, seen: VisitResult, run: int, outcome: str, *, keep: bool) -> Effect:
    before, hop = fobi.visit, seen.hop
    validators = not seen.drop_validators and not seen.target
    etag = hop.header("etag") if validators else ""
    modified = hop.header("last-modified") if validators else ""
    if outcome == "not-modified" and before is not None and validators:
        etag, modified = etag or before.etag, modified or before.modified
    visit = Visit(
        tist=run,
        outcome=outcome,
        status=hop.status,
        target=seen.target,
        etag=etag,
        modified=modified,
        checked=run,
        message=seen.message,
    )
    version = seen.version
    state = fobi.history.at(run)
    if not keep:
        due = next_due(config, visit, _noted(fobi), lost=False)
        kept = fobi.versions.get(state) if state is not None else None
        entry = fobi.history.entry_at(run)
        place = (entry[0], fobi.id) if entry is not None and kept is not None else seen.place
        return Effect(_record(fobi, visit, due), outcome, False, kept or version, place)
    if version is None:
        raise ValueError(f"{fobi.id}: nothing to keep")
    due = next_due(config, visit, run, lost=False)
    suspect = _suspect(fobi, version, state)
    kind = "returned" if state is None and len(fobi.history) else outcome
    note = Note(run, kind, status=hop.status, target=seen.target, headers=hop.headers, suspect=suspect)
    record = ObiChange("fobi", fobi.id, "", {run: version.sha256}, (), version, {run: note}, visit, due)
    return Effect(record, outcome, True, version, (run, fobi.id))


def _failed(config: Config, fobi: Obi, seen: VisitResult, run: int) -> Effect:
    before, hop, outcome = fobi.visit, seen.hop, seen.outcome
    gone = outcome == "gone"
    since = before.gone_since if before is not None else 0
    visit = Visit(
        tist=run,
        outcome=outcome,
        status=hop.status,
        target=seen.target,
        etag=before.etag if before is not None else "",
        modified=before.modified if before is not None else "",
        gone_since=(since or run) if gone else since,
        gone=(before.gone if before is not None else 0) + gone,
        fails=(before.fails if before is not None else 0) + (0 if hop.deferred else 1),
        checked=before.checked if before is not None else 0,
        message=(seen.message or hop.message)[:500],
    )
    lost = not fobi.history.held
    if fobi.history.held and is_lost(config, visit):
        note = Note(
            run, "lost", reason=_why_gone(hop), status=hop.status, target=seen.target, headers=hop.headers
        )
        due, since = next_due(config, visit, None, lost=True), visit.gone_since
        record = ObiChange("fobi", fobi.id, "", {since: None}, (), None, {since: note}, visit, due)
        return Effect(record, outcome, False, None, None)
    due = next_due(config, visit, None, lost=lost, deferred=hop.deferred)
    return Effect(_record(fobi, visit, due), outcome, False, None, None)


def _record(fobi: Obi, visit: Visit, due: int) -> ObiChange:
    """A visit that is no incidence."""
    return ObiChange("fobi", fobi.id, visit=visit, due=due)


def _why_gone(hop: Hop) -> str:
    return f"HTTP status {hop.status}" if hop.status else hop.message[:200] or "gone"


def _noted(fobi: Obi) -> int | None:
    noted = fobi.history.noted
    return noted[-1] if noted else None


def _suspect(fobi: Obi, version: Version, state: str | None) -> str:
    if version.size == 0:
        return "empty"
    before = fobi.versions.get(state) if state is not None else fobi.newest
    if before is not None and is_page_instead_of_pdf(before.type, version.type):
        return "page instead of PDF"
    return ""
