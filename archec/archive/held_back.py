"""The records of losses that are held back until a person decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from xxhash import xxh3_128_hexdigest

from archec.archive.evidence import Evidence
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import LossesHeldBack, SetAdded
from archec.catalogue.model import DataSet, HeldBack, HeldGroup, KeyedSet, Kind


def id_list(ids: Iterable[str]) -> KeyedSet:
    """Encodes a list of ids as a set whose key is a hash of its contents."""
    data = b"".join(line + b"\n" for line in sorted({obi.encode() for obi in ids}))
    return KeyedSet(xxh3_128_hexdigest(data), data)


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
        for line in (catalogue.keyed(group.ids) or b"").splitlines():
            yield name, line.decode()


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
