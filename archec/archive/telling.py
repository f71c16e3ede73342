"""Telling: what each data set says of a tobi, what the archive makes of it, and when an obi was last seen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from archec.archive.evidence import Evidence
from archec.archive.judging import Verdict, claim_of, verdict_after
from archec.catalogue.model import Claim, DataSet, Obi
from archec.tist import MAX_TIST


@dataclass(frozen=True, slots=True)
class Told:
    """What one data set says, and what became of it.

    ``state`` is the sha256 of what it shows at ``place``, None where it shows nothing. ``outcome``: ``seen``; ``lost``
    and ``absent`` (it was lost before); ``conflict`` (another data set of its date counts); ``superseded`` and
    ``retracted`` (it does not count, ``by`` the run of another data set, or for a reason); else the word of an
    :class:`~archec.archive.evidence.Unknown`, and ``by`` which file or directory.
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


def told(obi: Obi, evidence: Evidence) -> Iterator[Told]:
    """All data sets from the first on that shows the tobi, in their order."""
    if not obi.claims:
        return
    verdict, at = Verdict(), 0
    for data_set in evidence.data_sets:
        if data_set.key < obi.claims[0].key:
            continue
        before = verdict
        while at < len(evidence.dates) and evidence.tists[at] <= data_set.tist:
            before = verdict
            verdict = verdict_after(obi.id, verdict, obi.claims, evidence, evidence.dates[at][1])
            at += 1
        claim = claim_of(obi.claims, data_set, evidence.look(data_set))
        outcome, by = _outcome(data_set, claim, before, verdict, evidence)
        yield Told(
            data_set.tist, data_set.run, data_set.name, data_set.whole, claim.state if claim else None,
            claim.place if claim else "", claim.bytes_at if claim else None, outcome, by,
        )  # fmt: skip


def last_seen(obi: Obi, evidence: Evidence) -> int | None:
    """When the newest state that was held was last confirmed, None where there never was one: for a tobi the date of
    the newest data set that shows it, for a fobi the last visit that saw contents. Else it is when it was noted."""
    if not obi.history.noted:
        return None
    noted = obi.history.noted[-1]
    if obi.kind == "fobi" and obi.visit is not None:
        return max(noted, obi.visit.checked)
    lost, state = obi.history.lost, obi.history.last_held
    for at in range(bisect_left(evidence.tists, MAX_TIST if lost is None else lost) - 1, -1, -1):
        tist, group = evidence.dates[at]
        claims = (claim_of(obi.claims, one, evidence.look(one)) for one in group)
        if tist <= noted or any(claim is not None and claim.state == state for claim in claims):
            return max(tist, noted)
    return noted


def _outcome(
    data_set: DataSet, claim: Claim | None, before: Verdict, after: Verdict, evidence: Evidence
) -> tuple[str, str]:
    if data_set.retracted:
        return "retracted", data_set.retracted
    if not evidence.speaks(data_set):
        others = (item for item in evidence.data_sets if item.tist == data_set.tist and evidence.speaks(item))
        return "superseded", str(next(others).run)
    if claim is not None:
        if claim.state == after.state:
            return "seen", ""
        return (after.why.word, after.why.by) if after.why is not None else ("conflict", "")
    if after.state is None:
        return ("lost", "") if before.state is not None else ("absent", "")
    return (after.why.word, after.why.by) if after.why is not None else ("conflict", "")
