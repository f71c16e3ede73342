"""Losses of files: whether the last visit confirms one; and the records of losses held back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from archec.archive.absence import Evidence, id_list, ids_in
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import DataSet, HeldBack, HeldGroup, KeyedSet, Kind, Note, Obi, Visit
from archec.catalogue.records import LossesHeldBack, ObiChange, SetAdded
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


def held_back_record(
    run: int, losses: Iterable[tuple[str, str]], kind: Kind = "tobi"
) -> tuple[HeldBack, list[KeyedSet]]:
    """Builds the record of losses held back, given as (group, id), and the id lists that it refers to."""
    by_group: defaultdict[str, list[str]] = defaultdict(list)
    for group, obi in losses:
        by_group[group].append(obi)
    lists = {group: id_list(ids) for group, ids in sorted(by_group.items())}
    groups = {group: HeldGroup(len(by_group[group]), one.key) for group, one in lists.items()}
    return HeldBack(run, kind, groups), list(lists.values())


def journalled(
    catalogue: Catalogue, record: HeldBack, lists: Iterable[KeyedSet]
) -> Iterator[SetAdded | LossesHeldBack]:
    """Yields the journal records for a record of losses held back, with the lists that are not in the catalogue yet."""
    yield from (SetAdded.of(item) for item in lists if catalogue.keyed(item.key) is None)
    yield LossesHeldBack(record)


def held_losses(catalogue: Catalogue, held_back: HeldBack) -> Iterator[tuple[str, str]]:
    """Yields the losses in a record as (group, id)."""
    for name, group in held_back.groups.items():
        for obi in ids_in(catalogue.keyed(group.ids) or b""):
            yield name, obi


def without_accepted(
    catalogue: Catalogue, evidence: Evidence, data_set: DataSet, accepted: Collection[str]
) -> Iterator[tuple[HeldBack, list[KeyedSet]]]:
    """Yields new records of losses held back for ``data_set`` and later ones, without the ``accepted`` losses. Records
    that do not change are left out. Tobis that are seen again are not in later records."""
    runs = {one.run for one in evidence.data_sets if one.key >= data_set.key}
    for item in catalogue.held_back():
        if item.kind == "tobi" and item.run in runs:
            losses = list(held_losses(catalogue, item))
            left = [(group, obi) for group, obi in losses if obi not in accepted]
            if len(left) < len(losses):
                yield held_back_record(item.run, left)


def files_of(catalogue: Catalogue, held_back: HeldBack) -> Iterator[tuple[str, str]]:
    """Yields the files in a record as (host, URL); none for a record of templates."""
    return held_losses(catalogue, held_back) if held_back.kind == "fobi" else iter(())
