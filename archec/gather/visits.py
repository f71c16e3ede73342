"""Visits: what a hop means for a fobi's history. Pure rules of design section 5."""

from __future__ import annotations

from typing import NamedTuple

from archec.catalogue.model import Fobi, FobiNote, FobiVersion, Visit
from archec.catalogue.records import FobiVisit
from archec.config import Config
from archec.gather.schedule import is_lost, next_due
from archec.text.sniff import is_page_instead_of_pdf
from archec.web.task import Hop

__all__ = ["Effect", "Seen", "visit_for"]


class Seen(NamedTuple):
    """What a visit to a URL came to.

    ``outcome`` is the vocabulary's word for a failure, or empty where the contents are known:
    then ``version`` describes them. ``unchanged``: the server said so (304). ``target`` is the id that
    the URL redirected to; ``place`` the (tist, id) under which the contents are held already, None
    for a body that is still to be stored. ``drop_validators``: the body kept is not the one that the
    headers speak of. ``hops``: how many redirects lead from the URL to the contents.
    """

    hop: Hop
    outcome: str = ""
    version: FobiVersion | None = None
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

    record: FobiVisit
    outcome: str
    keep: bool
    version: FobiVersion | None
    place: tuple[int, str] | None
    hops: int = 0
    deferred: bool = False


def visit_for(config: Config, fobi: Fobi, seen: Seen, run: int) -> Effect:
    """What a visit does to a fobi: its outcome, its incidence if it is one, when it is due again."""
    state = fobi.history.at(run)
    if seen.outcome:
        return _failed(config, fobi, seen, run)
    version = seen.version
    if seen.unchanged and state is not None and version is not None and version.md5 == state:
        return _held(config, fobi, seen, run, "not-modified", keep=False)
    if version is None:
        return _failed(config, fobi, seen._replace(outcome="server-error", message="304 for what is not held"), run)
    if state == version.md5:
        return _held(config, fobi, seen, run, "not-modified" if seen.unchanged else "same", keep=False)
    if state is None:
        return _held(config, fobi, seen, run, "new", keep=True)
    before = fobi.versions.get(state)
    same_text = before is not None and before.text is not None and before.text == version.text
    if same_text:
        return _held(config, fobi, seen, run, "cosmetic", keep=config.store_cosmetic)
    return _held(config, fobi, seen, run, "changed", keep=True)


def _held(config: Config, fobi: Fobi, seen: Seen, run: int, outcome: str, *, keep: bool) -> Effect:
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
        return Effect(FobiVisit(fobi.id, visit, due), outcome, False, kept or version, place)
    if version is None:
        raise ValueError(f"{fobi.id}: nothing to keep")
    due = next_due(config, visit, run, lost=False)
    suspect = _suspect(fobi, version, state)
    kind = "returned" if state is None and len(fobi.history) else outcome
    note = FobiNote(run, kind, hop.status, seen.target, hop.headers, suspect)
    record = FobiVisit(fobi.id, visit, due, {run: version.md5}, version, note)
    return Effect(record, outcome, True, version, (run, fobi.id))


def _failed(config: Config, fobi: Fobi, seen: Seen, run: int) -> Effect:
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
        note = FobiNote(run, "lost", hop.status, seen.target, hop.headers, reason=_why_gone(hop))
        due = next_due(config, visit, None, lost=True)
        return Effect(FobiVisit(fobi.id, visit, due, {visit.gone_since: None}, None, note), outcome, False, None, None)
    due = next_due(config, visit, None, lost=lost, deferred=hop.deferred)
    return Effect(FobiVisit(fobi.id, visit, due), outcome, False, None, None)


def _why_gone(hop: Hop) -> str:
    return f"HTTP status {hop.status}" if hop.status else hop.message[:200] or "gone"


def _noted(fobi: Fobi) -> int | None:
    noted = fobi.history.noted
    return noted[-1] if noted else None


def _suspect(fobi: Fobi, version: FobiVersion, state: str | None) -> str:
    if version.size == 0:
        return "empty"
    before = fobi.versions.get(state) if state is not None else _last_version(fobi)
    if before is not None and is_page_instead_of_pdf(before.type, version.type):
        return "page instead of PDF"
    return ""


def _last_version(fobi: Fobi) -> FobiVersion | None:
    for state in reversed(fobi.history.states):
        if state is not None:
            return fobi.versions.get(state)
    return None
