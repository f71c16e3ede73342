"""The loss of a file: confirmed by several visits that find it gone, and a time of grace (design, section 5)."""

from __future__ import annotations

from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import Note, Obi, Visit
from archec.config import Config


def is_lost(config: Config, visit: Visit) -> bool:
    """Whether a visit confirms a loss: the file was gone in ``lost_confirmations`` visits, the first and last of them
    at least ``lost_grace`` apart."""
    return (
        visit.outcome == "gone"
        and visit.gone >= config.lost_confirmations
        and visit.when - visit.gone_when >= config.lost_grace
    )


def loss_of(config: Config, fobi: Obi, run: int) -> ObiChange | None:
    """The record, noted by ``run``, of a loss that the last visit to a fobi confirms; None if there is none."""
    visit = fobi.visit
    if visit is None or not fobi.history.held or not is_lost(config, visit):
        return None
    return ObiChange("fobi", fobi.id, put={visit.gone_since: None}, notes={visit.gone_since: loss_note(visit, run)})


def loss_note(visit: Visit, run: int) -> Note:
    """The note by ``run`` on a loss that a visit confirms."""
    why = f"HTTP status {visit.status}" if visit.status else visit.message[:200] or "gone"
    return Note(run, "lost", reason=why, status=visit.status, target=visit.target, seen=visit.checked)
