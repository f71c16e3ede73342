"""Losses of templates: when those of an archive are held back, and the record of it (design, section 4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from archec.archive.evidence import id_list
from archec.catalogue.model import HeldBack, HeldGroup, KeyedSet, Kind
from archec.config import Config
from archec.gather.merging import Held
from archec.gather.spool import Loss

_LEAST_HELD, _HALF = 3, 0.5


def is_held_back(config: Config, losses: int, held: int) -> bool:
    """The guard: whether too many of an archive's tobis, or of those in its directory, would be lost at once.

    Few are too many where they are more than half; ``max_loss`` may allow more than that.
    """
    if held >= _LEAST_HELD and losses > max(_HALF, config.max_loss) * held:
        return True
    return losses >= config.max_loss_least and losses > config.max_loss * held


def groups_to_hold_back(
    config: Config, losses: Iterable[Loss], held: Held, accepted: Collection[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """The archives and the archives' directories whose losses are held back. ``accepted`` names those that are let
    through, or ``all``."""
    if "all" in accepted:
        return frozenset(), frozenset()
    by_archive, by_directory = Counter[str](), Counter[str]()
    for loss in losses:
        by_archive[loss.archive] += 1
        by_directory[loss.directory] += 1
    return (
        frozenset(_too_many(config, by_archive, held.archives, {*accepted, ""})),
        frozenset(_too_many(config, by_directory, held.directories, accepted)),
    )


def _too_many(config: Config, losses: Counter[str], held: Counter[str], accepted: Collection[str]) -> Iterable[str]:
    return (
        name for name, count in losses.items() if name not in accepted and is_held_back(config, count, held[name])
    )


def group_of(loss: Loss, archives: Collection[str], directories: Collection[str], accepted: Collection[str]) -> str:
    """The name under which a loss is held back, empty where it is let through."""
    if loss.archive in accepted or loss.directory in accepted:
        return ""
    if loss.archive in archives:
        return loss.archive
    return loss.directory if loss.directory in directories else ""


def held_back_record(
    run: int, losses: Iterable[tuple[str, str]], kind: Kind = "tobi"
) -> tuple[HeldBack, list[KeyedSet]]:
    """The record of (group, id) of losses that are held back, and the lists that it names."""
    by_group: defaultdict[str, list[str]] = defaultdict(list)
    for group, obi in losses:
        by_group[group].append(obi)
    lists = {group: id_list(ids) for group, ids in sorted(by_group.items())}
    groups = {group: HeldGroup(len(by_group[group]), one.key) for group, one in lists.items()}
    return HeldBack(run, kind, groups), list(lists.values())
