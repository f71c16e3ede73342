"""Losses that are held back: which they are, and letting them through without gathering again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from archec.archive.commit import CommitItem
from archec.archive.conclusions import evidence_of, judge_again
from archec.archive.evidence import ids_in
from archec.archive.judging import judged
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import HeldBack
from archec.catalogue.records import LossesHeldBack, SetAdded
from archec.config import Config
from archec.errors import NotHeld
from archec.gather.decisions import deciding, locked
from archec.gather.file_losses import loss_of
from archec.gather.losses import held_back_record
from archec.gather.retract import find
from archec.ids import archive_of
from archec.tist import iso


class HeldLoss(NamedTuple):
    """A loss that is held back: by which data set's run, in which group, of which obi."""

    run: int
    group: str
    id: str


class Accepted(NamedTuple):
    """What a decision came to: its run, how many losses were let through, and the obis that are back instead."""

    run: int
    accepted: int
    back: list[str]


def held_losses(catalogue: Catalogue, held_back: HeldBack) -> Iterator[HeldLoss]:
    """The losses of a record, by group and id, as they were journalled."""
    for name, group in held_back.groups.items():
        for obi in ids_in(catalogue.keyed(group.ids) or b""):
            yield HeldLoss(held_back.run, name, obi)


def accept(config: Config, run: int, wanted: Collection[str]) -> Accepted:
    """Lets losses through: all that ``run`` (for templates: the one that read their data set) holds back, or those of
    the archives, archives' directories, hosts and ids in ``wanted``.

    Those that a later data set or visit has shown to be back stay as they are. Raises :class:`NotHeld` where there are
    none.
    """
    with locked(config, "losses") as archive:
        catalogue = archive.catalogue
        files = next((item for item in catalogue.held_back() if (item.run, item.kind) == (run, "fobi")), None)
        chosen = [loss for loss in held_losses(catalogue, files) if _wanted(loss, wanted)] if files is not None else []
        if files is not None and chosen:
            return _accept_files(archive, files, chosen, wanted)
        run = find(catalogue, catalogue.data_sets(), str(run)).run
        found = [item for item in catalogue.held_back() if (item.run, item.kind) == (run, "tobi") and item.groups]
        losses = list(held_losses(catalogue, found[0])) if found else []
        chosen = [loss for loss in losses if _wanted(loss, wanted)]
        if not chosen:
            raise NotHeld(f"run {run} ({iso(run)}) holds no such losses back", hint="'archec losses' lists them")
        back = set(_back(catalogue, run, [loss.id for loss in chosen]))
        accepted = {loss.id for loss in chosen} - back
        record, lists = held_back_record(run, ((loss.group, loss.id) for loss in losses if loss.id not in accepted))
        with deciding(archive, "losses", {"data_set": run, "accept": sorted(wanted)}) as decision:
            for item in lists:
                decision.committer.add(CommitItem(SetAdded.of(item)))
            decision.journal(LossesHeldBack(record))
            evidence, report = evidence_of(catalogue), decision.report
            report.tobis["lost"] = judge_again(catalogue, sorted(accepted), evidence, report.run, decision.committer)
    return Accepted(report.run, len(accepted), sorted(back))


def _accept_files(archive: Archive, held_back: HeldBack, chosen: list[HeldLoss], wanted: Collection[str]) -> Accepted:
    """Lets losses of files through. The last visit must still say that they are gone."""
    catalogue, accepted = archive.catalogue, {loss.id for loss in chosen}
    left = ((loss.group, loss.id) for loss in held_losses(catalogue, held_back) if loss.id not in accepted)
    record, lists = held_back_record(held_back.run, left, "fobi")
    back: list[str] = []
    with deciding(archive, "losses", {"run": held_back.run, "accept": sorted(wanted)}) as decision:
        for ids in lists:
            decision.committer.add(CommitItem(SetAdded.of(ids)))
        for fobi in catalogue.obis("fobi", accepted).values():
            loss = loss_of(archive.config, fobi, decision.report.run)
            if loss is None:
                back.append(fobi.id)
            else:
                decision.committer.add(CommitItem(loss))
                decision.report.visited(loss)
        decision.committer.add(CommitItem(LossesHeldBack(record)))
    return Accepted(decision.report.run, len(accepted) - len(back), sorted(back))


def _wanted(loss: HeldLoss, wanted: Collection[str]) -> bool:
    return not wanted or bool({loss.group, archive_of(loss.id), loss.id}.intersection(wanted))


def _back(catalogue: Catalogue, run: int, ids: Collection[str]) -> Iterator[str]:
    """Those that would be held all the same, as a later data set shows them."""
    evidence = evidence_of(catalogue)
    data_set = next((item for item in evidence.data_sets if item.run == run), None)
    if data_set is None:
        return
    evidence = evidence.with_data_set(data_set, (), None)
    for obi in catalogue.obis("tobi", ids).values():
        if judged(obi.id, obi.claims, evidence).last.state is not None:
            yield obi.id
