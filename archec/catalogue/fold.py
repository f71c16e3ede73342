"""Fold: derives catalogue documents from journal records.

Runs, recovery after a kill and ``archec rebuild`` all use :func:`changes_of`, so their results cannot differ. Folding
the same batch again changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from archec.catalogue.documents import text_of
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import (
    DataSetRead,
    HostNoted,
    IngestDone,
    LossesHeldBack,
    ManifestNoted,
    ObiChange,
    Record,
    Retraction,
    RunEnd,
    RunStart,
    SetAdded,
)
from archec.catalogue.model import Changes, Claim, DataSet, Kind, Obi, Position, Run, Visited

_Key = tuple[Kind, str]


def changes_of(records: Sequence[Record], position: Position, known: Catalogue) -> Changes:
    """Derives the changes that a journal batch makes to the catalogue.

    Obis are identified by kind and id: the fold does not rely on ids of different kinds being different.
    """
    changes = [record for record in records if isinstance(record, ObiChange)]
    before = _known_obis(changes, known)
    obis = {(kind, id): obi for kind, found in before.items() for id, obi in found.items()}  # noqa: A001
    changed: dict[_Key, None] = {}
    visited: dict[_Key, None] = {}
    mentioned: dict[str, None] = {}
    for change in changes:
        key = (change.kind, change.id)
        old = obis.get(key)
        after = obis[key] = fold_obi(old, change, position.stamp)
        (changed if _is_more_than_a_visit(change) else visited)[key] = None
        if change.put and change.kind == "tobi":
            named = after.names if old is None else after.names - old.names
            mentioned.update(dict.fromkeys(sorted(named)))
    others = [record for record in records if not isinstance(record, ObiChange)]
    return Changes(
        position=position,
        obis=[obis[key] for key in changed],
        visits=[
            Visited(obi.id, visit, obi.due)
            for key in visited
            if key not in changed and (visit := (obi := obis[key]).visit) is not None
        ],
        mentioned=[url for url in mentioned if ("fobi", url) not in obis],
        runs=_fold_runs(others, known),
        data_sets=_fold_data_sets(others, known),
        sets=list({item.key: item.keyed() for item in others if isinstance(item, SetAdded)}.values()),
        manifests=[record.part for record in others if isinstance(record, ManifestNoted)],
        ingests=[record.ingest for record in others if isinstance(record, IngestDone)],
        hosts=list({record.host.host: record.host for record in others if isinstance(record, HostNoted)}.values()),
        held_back=[record.held_back for record in others if isinstance(record, LossesHeldBack)],
        before=before,
    )


def _known_obis(changes: Sequence[ObiChange], known: Catalogue) -> dict[Kind, dict[str, Obi]]:
    ids: dict[Kind, set[str]] = {}
    for change in changes:
        ids.setdefault(change.kind, set()).add(change.id)
    return {kind: known.obis(kind, wanted) for kind, wanted in ids.items()}


def _is_more_than_a_visit(change: ObiChange) -> bool:
    return bool(change.put or change.drop or change.claims or change.place or change.settled)


def merged(claims: Sequence[Claim], added: Sequence[Claim]) -> tuple[Claim, ...]:
    """Claims with others added or replaced. Both are in order, and so is the result."""
    if not (claims and added):
        return (*claims, *added)
    every = {claim.key: claim for claim in (*claims, *added)}
    return tuple(every[key] for key in sorted(every))


def fold_obi(obi: Obi | None, change: ObiChange, stamp: int) -> Obi:
    """Applies a change to an obi. Versions that neither its history nor its claims name, and notes without an entry,
    are removed."""
    if obi is None:
        obi = Obi(change.id, change.kind)
    if change.visit is not None:
        obi = replace(obi, visit=change.visit, due=change.due)
    claims = merged(obi.claims, change.claims)
    place = change.place or (claims[-1].place if claims else "") or obi.place
    settled = max(obi.settled, change.settled)
    if not (change.put or change.drop or change.version):
        return replace(obi, claims=claims, place=place, settled=settled) if _is_more_than_a_visit(change) else obi
    history = obi.history.changed(change.put, change.drop)
    versions = dict(obi.versions)
    if change.version is not None:
        versions[change.version.sha256] = change.version
    notes = {**obi.notes, **change.notes}
    newest = change.put.get(history.last or 0) is not None
    states = {*history.states, *(claim.state for claim in claims)}
    return replace(
        obi,
        history=history,
        versions={sha256: version for sha256, version in sorted(versions.items()) if sha256 in states},
        notes={tist: notes[tist] for tist in history.tists if tist in notes},
        handle=change.handle if newest or not obi.handle else obi.handle,
        stamp=stamp if change.put or change.drop else obi.stamp,
        claims=claims,
        place=place,
        settled=settled,
    )


def _fold_runs(records: Sequence[Record], known: Catalogue) -> list[Run]:
    runs: dict[int, Run] = {}
    for record in records:
        if isinstance(record, RunStart):
            runs[record.tist] = Run(
                record.tist,
                kind=record.kind,
                data_set=record.data_set,
                form=record.form,
                source=record.source,
                options=text_of(record.options).decode(),
            )
        elif isinstance(record, RunEnd):
            run = runs.get(record.tist) or known.run(record.tist) or Run(record.tist)
            report = text_of(record.report).decode()
            runs[record.tist] = replace(run, state=record.state, report=report)
        elif isinstance(record, Retraction) and record.visits:
            run = runs.get(record.run) or known.run(record.run) or Run(record.run)
            reason = "" if record.undo else record.reason
            runs[record.run] = replace(run, retracted=reason)
    return list(runs.values())


def _fold_data_sets(records: Sequence[Record], known: Catalogue) -> list[DataSet]:
    data_sets: dict[int, DataSet] = {}
    for record in records:
        if isinstance(record, DataSetRead):
            data_sets[record.data_set.run] = record.data_set
        elif isinstance(record, Retraction) and not record.visits:
            wanted = record.run
            found = data_sets.get(wanted) or next((item for item in known.data_sets() if item.run == wanted), None)
            if found is not None:
                data_sets[wanted] = replace(found, retracted="" if record.undo else record.reason)
    return list(data_sets.values())
