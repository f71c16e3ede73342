"""Losses that are held back until a person decides (design, sections 4 and 5): whether too many of an archive's
templates or of a host's files are lost at once, and the records of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from xxhash import xxh3_128_hexdigest

from archec.archive.evidence import Evidence
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import LossesHeldBack, SetAdded
from archec.catalogue.model import DataSet, HeldBack, HeldGroup, KeyedSet, Kind
from archec.config import Config

_LEAST_HELD = 3
_HALF = 0.5


class Loss(NamedTuple):
    """A tobi that is lost according to the data set: the archive of its handle, and the archive's directory of its
    place."""

    archive: str
    directory: str
    id: str


def is_held_back(config: Config, losses: int, held: int) -> bool:
    """The guard: whether too many of an archive's tobis, or of those in its directory, would be lost at once.

    Fewer than ``max_loss_least`` are too many only if they are more than half; ``max_loss`` may allow more than that.
    """
    if held >= _LEAST_HELD and losses > max(_HALF, config.max_loss) * held:
        return True
    return losses >= config.max_loss_least and losses > config.max_loss * held


class HeldCounts(NamedTuple):
    """The number of tobis held as of a data set's date, by the archive of their handle, and by the archive's directory
    of their place. The merge leaves out of ``directories`` those whose place on that date the scan does not know."""

    archives: Counter[str]
    directories: Counter[str]


def groups_to_hold_back(config: Config, losses: Iterable[Loss], held: HeldCounts) -> tuple[set[str], set[str]]:
    """The archives and the archives' directories that would lose too much at once."""
    by_archive, by_directory = Counter[str](), Counter[str]()
    for loss in losses:
        by_archive[loss.archive] += 1
        by_directory[loss.directory] += 1
    return (
        {name for name, lost in by_archive.items() if name and is_held_back(config, lost, held.archives[name])},
        {name for name, lost in by_directory.items() if is_held_back(config, lost, held.directories[name])},
    )


def group_of(loss: Loss, archives: Collection[str], directories: Collection[str], accepted: Collection[str]) -> str:
    """The group under which a loss is held back, empty if it is not. ``accepted`` names those whose losses are
    accepted, or ``all``."""
    if not {"all", loss.archive, loss.directory}.isdisjoint(accepted):
        return ""
    if loss.archive in archives:
        return loss.archive
    return loss.directory if loss.directory in directories else ""


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
