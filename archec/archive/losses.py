"""Losses of files: whether the last visit confirms one, and the records of losses that are held back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from archec.archive.evidence import id_list, ids_in
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import HeldBack, HeldGroup, KeyedSet, Kind, Note, Obi, Visit
from archec.catalogue.records import ObiChange
from archec.config import Config


def is_lost(config: Config, visit: Visit) -> bool:
    """Whether this visit confirms a loss: gone in ``lost_confirmations`` visits, the first and the
    last of them at least ``lost_grace`` apart."""
    return (
        visit.outcome == "gone"
        and visit.gone >= config.lost_confirmations
        and visit.when - visit.gone_when >= config.lost_grace
    )


def loss_of(config: Config, fobi: Obi, run: int) -> ObiChange | None:
    """The loss confirmed by the last visit to a fobi, if any, as noted by ``run``."""
    visit = fobi.visit
    if visit is None or not fobi.history.held or not is_lost(config, visit):
        return None
    why = f"HTTP status {visit.status}" if visit.status else visit.message[:200] or "gone"
    note = Note(run, "lost", reason=why, status=visit.status, target=visit.target, seen=visit.checked)
    return ObiChange("fobi", fobi.id, put={visit.gone_since: None}, notes={visit.gone_since: note})


def held_back_record(
    run: int, losses: Iterable[tuple[str, str]], kind: Kind = "tobi"
) -> tuple[HeldBack, list[KeyedSet]]:
    """The record of losses held back, given as (group, id), and the lists that it refers to."""
    by_group: defaultdict[str, list[str]] = defaultdict(list)
    for group, obi in losses:
        by_group[group].append(obi)
    lists = {group: id_list(ids) for group, ids in sorted(by_group.items())}
    groups = {group: HeldGroup(len(by_group[group]), one.key) for group, one in lists.items()}
    return HeldBack(run, kind, groups), list(lists.values())


def files_of(catalogue: Catalogue, held_back: HeldBack) -> Iterator[tuple[str, str]]:
    """The files that a record lists, each with its host; none for templates."""
    for host, group in held_back.groups.items() if held_back.kind == "fobi" else ():
        for url in ids_in(catalogue.keyed(group.ids) or b""):
            yield host, url
