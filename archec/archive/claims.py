"""Claims: what data sets say about a tobi, the history that follows, and what is committed when it changes.

All known data sets are ordered by (date, run). A :class:`~archec.catalogue.model.Claim` is what one of them says about
a tobi. It also holds for the following data sets as long as they would contain a template at its place, so few claims
are stored, and a data set that arrives late is inserted in between (:func:`said`). The history is a function of the
claims and of the data sets that count (:func:`judged`): it does not depend on the order in which they were read, and is
derived again when one is added, superseded or retracted. :func:`explain` explains it for each data set. Of several
claims of one date, one counts (:func:`verdict_after`). That is pure; :func:`concluded` builds what is committed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from archec.archive.commit import CommitItem, Commits
from archec.archive.evidence import ELSEWHERE, HELD_BACK, Evidence, Look, NotJudged, hides
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import Claim, DataSet, Note, Obi, Version
from archec.history import History
from archec.redif.precedence import own
from archec.store.writer import HardLink, Placement
from archec.tist import MAX_TIST

_key = attrgetter("key")


class Verdict(NamedTuple):
    """The conclusion as of a date: the state (None: not held) and the place where the tobi was last seen ("": never).
    ``why`` is the reason why the data sets of that date were not conclusive, ``claim`` the claim that counts at it.
    """

    state: str | None = None
    place: str = ""
    why: NotJudged | None = None
    claim: Claim | None = None


class Judgement(NamedTuple):
    """A history; the claim for each of its states; for each date the reason why data sets were not conclusive; the
    newest verdict, with the date ``since`` which it has its state and place; and all claims that it follows from."""

    history: History
    claims: dict[int, Claim]
    whys: dict[int, NotJudged]
    last: Verdict
    since: int
    every: Sequence[Claim]


def claim_of(claims: Sequence[Claim], data_set: DataSet, look: Look) -> Claim | None:
    """The claim of a data set, explicit or implied by an earlier one; None if it does not contain the tobi. ``claims``
    are in order."""
    i = bisect_right(claims, data_set.key, key=_key)
    if not i:
        return None
    claim = claims[i - 1]
    if claim.key == data_set.key:
        return claim if claim.state is not None else None
    return look.shows(claim)


def said(claims: Sequence[Claim], evidence: Evidence, data_set: DataSet, new: Claim | None) -> list[Claim]:
    """Returns the claims to add or replace so that ``data_set`` says ``new`` (None: the tobi is not in it) and every
    other data set still says the same."""
    i = bisect_left(claims, data_set.key, key=_key)
    before = claims[i - 1] if i else None
    own_claim = claims[i] if i < len(claims) and claims[i].key == data_set.key else None
    old = own_claim if own_claim is not None else before
    if own_claim is None and _same(evidence.look(data_set).shows(before), new):
        return []
    if own_claim is not None and own_claim.agrees(new):
        return []
    absent = Claim(data_set.tist, data_set.run, None)
    now = new if new is not None else absent
    added = [now]
    until = i + 1 if own_claim is not None else i
    end = claims[until].key if until < len(claims) else None
    for n in range(bisect_right(evidence.keys, data_set.key), len(evidence.keys)):
        item = evidence.data_sets[n]
        if now.agrees(old) or (end is not None and item.key >= end):
            break
        look = evidence.look(item)
        was = look.shows(old)
        if not _same(look.shows(now), was):
            now = Claim(*item.key, None) if was is None else again(was, item)
            added.append(now)
    return added


def again(claim: Claim, data_set: DataSet) -> Claim:
    """The same claim, made by another data set; its bytes stay where they are."""
    at = claim.bytes_at
    tist, run = data_set.key
    return replace(claim, tist=tist, run=run, at=0 if at == tist else at)


def judged(handle: str, claims: Sequence[Claim], evidence: Evidence) -> Judgement:
    """Derives the history from the claims. A loss that was held back before counts from the first date at which it was,
    unless the tobi was seen since."""
    entries: dict[int, str | None] = {}
    behind: dict[int, Claim] = {}
    whys: dict[int, NotJudged] = {}
    verdict, since, waiting = Verdict(), 0, 0
    at = bisect_left(evidence.tists, claims[0].tist) if claims else len(evidence.dates)
    while at < len(evidence.dates):
        tist, group = evidence.dates[at]
        after = verdict_after(handle, verdict, claims, evidence, group)
        when = waiting or tist if after.state is None else tist
        if after.state != verdict.state:
            entries[when] = after.state
            if after.claim is not None:
                behind[tist] = after.claim
        if (after.state, after.place) != (verdict.state, verdict.place):
            since = when
        if after.why is not None:
            whys[tist] = after.why
        word = after.why.word if after.why is not None else ""
        if word == HELD_BACK.word:
            waiting = waiting or tist
        elif after.claim is not None or word == ELSEWHERE:
            waiting = 0
        verdict = after
        at = _next(claims, evidence, at, verdict)
    return Judgement(History.of(entries), behind, whys, verdict, since, claims)


def _next(claims: Sequence[Claim], evidence: Evidence, at: int, verdict: Verdict) -> int:
    """The index of the next date that may change the verdict. If the verdict agrees with the newest claim, that is the
    date of the next claim."""
    i = bisect_right(claims, evidence.tists[at], key=lambda claim: claim.tist)
    newest = claims[i - 1]
    if newest.state != verdict.state or (newest.state is not None and newest.place != verdict.place):
        return at + 1
    return bisect_left(evidence.tists, claims[i].tist) if i < len(claims) else len(evidence.dates)


def verdict_after(
    handle: str, before: Verdict, claims: Sequence[Claim], evidence: Evidence, group: Sequence[DataSet]
) -> Verdict:
    """The verdict as of the date of ``group``, the data sets of one date that count.

    Of several claims, one with a well-formed handle wins, then the one with the greatest sha256. A copy of lower
    precedence than the previous one counts only if that one is known to be gone. As a reason, a loss that is held back
    takes precedence over data sets that do not judge it.
    """
    looks = [evidence.look(item) for item in group]
    shown = [(look, claim) for look in looks if (claim := claim_of(claims, look.data_set, look)) is not None]
    why: NotJudged | None = None
    believed: list[Claim] = []
    for look, claim in shown:
        hidden = None
        if before.state is not None and claim.place != before.place:
            malformed = {claim.state for claim in claims if claim.malformed}
            less = _rank(handle, claim, malformed) < _rank(handle, before, malformed)
            hidden = hides(look.coverage, before.place) if less else None
        if hidden is None:
            believed.append(claim)
        else:
            why = NotJudged(ELSEWHERE, hidden.by)
    if believed:
        best = max(believed, key=lambda claim: (not claim.malformed, claim.state or "", claim.place))
        return Verdict(best.state, best.place, None, best)
    if before.state is None or shown:
        return Verdict(before.state, before.place, why)
    whys = [look.ignores(handle, before.place) for look in looks]
    if None in whys:
        return Verdict(None, before.place)
    return Verdict(before.state, before.place, HELD_BACK if HELD_BACK in whys else whys[0])


def _rank(handle: str, seen: Claim | Verdict, malformed: Collection[str | None]) -> tuple[bool, bool, bytes]:
    place = seen.place
    return seen.state not in malformed, own(handle, f"RePEc/{place}"), place.encode("utf-8", "surrogatepass")


def _same(one: Claim | None, other: Claim | None) -> bool:
    return other is None if one is None else one.agrees(other)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one data set says, and whether it counts.

    ``state`` is the sha256 of the template at ``place``; None if there is none. ``outcome`` is ``seen``, ``lost``,
    ``absent`` (it was lost before), ``conflict`` (another data set of the same date counts), ``superseded`` (by the run
    in ``by``), ``retracted`` (for the reason in ``by``), or the code of an :class:`~archec.archive.evidence.NotJudged`
    with its file or directory in ``by``.
    """

    tist: int
    run: int
    name: str
    whole: bool
    state: str | None
    place: str
    bytes_at: int | None
    outcome: str
    by: str = ""


def explain(obi: Obi, evidence: Evidence) -> Iterator[Explanation]:
    """Explains all data sets in order, from the first one that contains the tobi."""
    if not obi.claims:
        return
    history = judged(obi.id, obi.claims, evidence).history
    verdict, at = Verdict(), 0
    for data_set in evidence.data_sets:
        if data_set.key < obi.claims[0].key:
            continue
        while at < len(evidence.dates) and evidence.tists[at] <= data_set.tist:
            verdict = verdict_after(obi.id, verdict, obi.claims, evidence, evidence.dates[at][1])
            at += 1
        claim = claim_of(obi.claims, data_set, evidence.look(data_set))
        outcome, by = _outcome(data_set, claim, verdict, history, evidence)
        yield Explanation(
            data_set.tist, data_set.run, data_set.name, data_set.whole, claim.state if claim else None,
            claim.place if claim else "", claim.bytes_at if claim else None, outcome, by,
        )  # fmt: skip


def last_seen(obi: Obi, evidence: Evidence, loss: int | None = None) -> int | None:
    """The tist at which the newest held state (with ``loss``, the last one before the loss at that tist) was last
    confirmed: for a tobi that of the newest data set that contains it, for a fobi that of the last visit that received
    or confirmed its contents, otherwise when it was noted (for a fileset, what the note of a loss says). None if it was
    never held."""
    now = obi.history.lost
    lost = now if loss is None else loss
    noted = max((tist for tist in obi.history.noted if lost is None or tist < lost), default=None)
    if noted is None:
        return None
    if obi.kind != "tobi":
        if obi.visit is not None and lost == now:
            return max(noted, obi.visit.checked)
        note = obi.notes.get(lost or 0)
        return max(noted, note.seen) if note is not None else noted
    state = obi.history.at(noted)
    for at in range(bisect_left(evidence.tists, MAX_TIST if lost is None else lost) - 1, -1, -1):
        tist, group = evidence.dates[at]
        claims = (claim_of(obi.claims, one, evidence.look(one)) for one in group)
        if tist <= noted or any(claim is not None and claim.state == state for claim in claims):
            return max(tist, noted)
    return noted


def last_shown(claims: Sequence[Claim], evidence: Evidence) -> tuple[int, int]:
    """The key of the newest data set that counts and contains the tobi; (0, 0) if there is none."""
    end = len(evidence.keys)
    for claim in reversed(claims):
        start = bisect_left(evidence.keys, claim.key)
        for data_set in reversed(evidence.data_sets[start:end] if claim.state is not None else ()):
            if evidence.speaks(data_set) and claim_of(claims, data_set, evidence.look(data_set)) is not None:
                return data_set.key
        end = start
    return 0, 0


def _outcome(
    data_set: DataSet, claim: Claim | None, after: Verdict, history: History, evidence: Evidence
) -> tuple[str, str]:
    if data_set.retracted:
        return "retracted", data_set.retracted
    if not evidence.speaks(data_set):
        others = (item for item in evidence.data_sets if item.tist == data_set.tist and evidence.speaks(item))
        return "superseded", str(next(others).run)
    if claim is not None:
        if claim.state == after.state:
            return "seen", ""
    elif history.at(data_set.tist) is None:
        return ("lost" if data_set.tist in history.tists else "absent"), ""
    return (after.why.word, after.why.by) if after.why is not None else ("conflict", "")


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
