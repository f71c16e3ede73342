"""Revision: derives the histories of tobis again from their claims, and builds the items to commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from archec.archive.claims import Judgement, judged
from archec.archive.commit import CommitItem, Commits
from archec.archive.evidence import Evidence
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import Claim, Note, Obi, Version
from archec.store.writer import HardLink, Placement


def concluded(
    obi: Obi,
    added: Sequence[Claim],
    judgement: Judgement,
    run: int,
    *,
    kinds: Mapping[int, str] | None = None,
    handle: str = "",
    version: Version | None = None,
    placement: Placement | None = None,
) -> CommitItem | None:
    """Builds the item that ``run`` must commit so that the history of a tobi becomes that of ``judgement``. Returns
    None if nothing changes.

    ``added`` are the new ones of its claims. ``kinds`` has the kinds of the notes by tist; other entries are
    ``restated``. ``version`` and ``placement`` are those of new contents.
    """
    before, after = obi.history.as_dict(), judgement.history.as_dict()
    put = {tist: state for tist, state in after.items() if tist not in before or before[tist] != state}
    drop = tuple([tist for tist in before if tist not in after])
    claims = judgement.every
    usual = (claims[-1].place if claims else "") or obi.place
    place = judgement.last.place or usual
    plain_since = max(judgement.history.last or 0, claims[-1].tist if claims else 0)
    settled = judgement.since if judgement.since > max(plain_since, obi.settled) else 0
    if not (added or put or drop or place != obi.place or settled):
        return None
    notes: dict[int, Note] = {}
    kept = {placement.tist: placement.sha256} if placement is not None else {}
    links: list[HardLink] = []
    for tist, state in put.items():
        if state is None:
            notes[tist] = Note(run, "lost", reason=_reason(judgement, claims, tist))
            continue
        at = judgement.claims[tist].bytes_at
        if at != tist and not any(claim.bytes_at == tist and claim.state not in (None, state) for claim in claims):
            links.append(HardLink(at, obi.id, tist, obi.id))
            at = tist
        if at == tist:
            kept[tist] = state
        notes[tist] = Note(run, (kinds or {}).get(tist, "restated"), at=0 if at == tist else at)
    plain = {tist: state for tist, state in put.items() if state is not None}
    record = ObiChange(
        "tobi", obi.id, handle or obi.handle, put, drop, version, notes,
        claims=tuple(added), place="" if place == usual and (added or put or drop) else place,
        settled=settled, kept=None if kept == plain else kept,
    )  # fmt: skip
    return CommitItem(record, placement, (), tuple(links))


def _reason(judgement: Judgement, claims: Sequence[Claim], tist: int) -> str:
    """The reason for the loss of a tobi at ``tist``, which names its last place."""
    seen = [claim.place for claim in claims if claim.state is not None and claim.tist < tist]
    return f"no longer in {seen[-1] if seen else judgement.last.place}, which was read without it or has been removed"


def judge_again(catalogue: Catalogue, ids: Iterable[str] | None, evidence: Evidence, run: int, to: Commits) -> int:
    """Derives the histories of these tobis (None: of all) again from the known data sets. Returns how many changed."""
    changed = 0
    for obi in catalogue.all("tobi") if ids is None else catalogue.each("tobi", ids):
        item = concluded(obi, (), judged(obi.id, obi.claims, evidence), run)
        if item is not None:
            to.add(item)
            changed += 1
    to.commit()
    return changed
