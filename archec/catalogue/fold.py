"""Fold: how journal records become catalogue documents.

Live runs, recovery after a kill and ``archec rebuild`` all go through :func:`changes_of`, so they
cannot differ. Folding the same batch again changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from archec.catalogue.model import (
    CORE,
    Changes,
    DataSet,
    Fobi,
    Position,
    Run,
    SeenSet,
    TextPlace,
    Tobi,
)
from archec.catalogue.records import FobiVisit, Record, RunEnd, RunStart, TobiChange
from archec.history import Change

__all__ = ["Known", "changes_of", "fold_data_set", "fold_fobi", "fold_tobi"]


class Known(Protocol):
    """What a fold needs to read: a catalogue is one."""

    def tobis(self, ids: Collection[str]) -> dict[str, Tobi]: ...

    def fobis(self, ids: Collection[str]) -> dict[str, Fobi]: ...

    def runs(self) -> list[Run]: ...

    def data_sets(self) -> list[DataSet]: ...


def changes_of(
    records: Sequence[Record], position: Position, known: Known, *, fresh: Collection[str] = frozenset()
) -> Changes:
    """The lot of writes that one journal batch means for the catalogue.

    ``fresh`` may name tobis that the caller knows to be absent, to save looking them up.
    """
    tobi_changes = [r for r in records if isinstance(r, TobiChange)]
    visits = [r for r in records if isinstance(r, FobiVisit)]
    others = [r for r in records if not isinstance(r, (TobiChange, FobiVisit))]
    tobis = known.tobis({r.id for r in tobi_changes if r.id not in fresh}) if tobi_changes else {}
    fobis = known.fobis({r.id for r in visits}) if visits else {}
    vi: list[TextPlace] = []
    vo: list[TextPlace] = []
    mentioned: dict[str, None] = {}
    for change in tobi_changes:
        tobis[change.id] = fold_tobi(tobis.get(change.id), change, position.stamp)
        if change.version is not None:
            mentioned.update((ref.url, None) for ref in change.version.refs)
            md5, text = change.version.md5, change.version.text
            vi += [TextPlace(text, tist, change.id) for tist, state in change.put.items() if state == md5]
    for visit in visits:
        fobis[visit.id] = fold_fobi(fobis.get(visit.id), visit, position.stamp)
        version, own = visit.version, visit.note is None or not visit.note.target
        if version is not None and version.text is not None and own:
            text = version.text
            vo += [TextPlace(text, tist, visit.id) for tist, state in visit.put.items() if state == version.md5]
    runs, data_sets, seen = _fold_others(others, known)
    return Changes(
        position=position,
        tobis=list(tobis.values()),
        fobis=list(fobis.values()),
        mentioned=[url for url in mentioned if url not in fobis],
        vi=_least(vi),
        vo=_least(vo),
        runs=runs,
        data_sets=data_sets,
        seen=seen,
    )


def fold_tobi(tobi: Tobi | None, change: TobiChange, stamp: int) -> Tobi:
    """A tobi after a change. Versions and notes that its history no longer names go."""
    if tobi is None:
        tobi = Tobi(change.id)
    history = tobi.history.apply(Change(change.put, change.drop))
    versions = dict(tobi.versions)
    if change.version is not None:
        versions[change.version.md5] = change.version
    notes = {**tobi.notes, **change.notes}
    if change.drop or len(notes) != len(history):
        notes = {tist: notes[tist] for tist in history.tists if tist in notes}
        versions = {md5: versions[md5] for md5 in history.states if md5 is not None and md5 in versions}
    newest = any(tist == history.last and state is not None for tist, state in change.put.items())
    return Tobi(
        change.id,
        change.handle if newest or not tobi.handle else tobi.handle,
        history,
        dict(sorted(versions.items())),
        dict(sorted(notes.items())),
        stamp,
    )


def fold_fobi(fobi: Fobi | None, visit: FobiVisit, stamp: int) -> Fobi:
    """A fobi after a visit."""
    if fobi is None:
        fobi = Fobi(visit.id)
    if not visit.put:
        return Fobi(fobi.id, fobi.history, fobi.versions, fobi.notes, visit.visit, visit.due, fobi.stamp)
    versions = dict(fobi.versions)
    if visit.version is not None:
        versions[visit.version.md5] = visit.version
    notes = dict(fobi.notes)
    if visit.note is not None:
        notes.update(dict.fromkeys(visit.put, visit.note))
    return Fobi(
        fobi.id,
        fobi.history.apply(Change(visit.put)),
        dict(sorted(versions.items())),
        dict(sorted(notes.items())),
        visit.visit,
        visit.due,
        stamp,
    )


def fold_data_set(old: DataSet | None, new: DataSet) -> DataSet:
    """What is known of a date's data set after one more run over a data set of that date."""
    if old is None:
        return new
    covered = set(old.covered | new.covered)
    partial: dict[str, tuple[str, ...]] = {}
    for code in old.partial.keys() | new.partial.keys():
        if any(d.complete and code not in d.partial for d in (old, new)):
            covered.add(code)
        elif code not in covered:
            keys = {*old.partial.get(code, ()), *new.partial.get(code, ())}
            partial[code] = tuple(sorted(keys))
    core = [d.guarded for d in (old, new) if CORE in d.covered]
    return DataSet(
        new.tist,
        tuple(sorted({*old.names, *new.names})),
        old.complete or new.complete,
        frozenset(covered),
        {code: keys for code, keys in sorted(partial.items()) if code not in covered},
        frozenset.intersection(*core) if core else old.guarded | new.guarded,
    )


def _fold_others(records: Sequence[Record], known: Known) -> tuple[list[Run], list[DataSet], list[SeenSet]]:
    runs: dict[int, Run] = {}
    data_sets: dict[int, DataSet] = {}
    seen: dict[str, SeenSet] = {}
    if any(isinstance(r, RunEnd) for r in records):
        runs.update((run.tist, run) for run in known.runs())
    if any(isinstance(r, DataSet) for r in records):
        data_sets.update((d.tist, d) for d in known.data_sets())
    changed_runs: dict[int, None] = {}
    changed_sets: dict[int, None] = {}
    for record in records:
        if isinstance(record, RunStart):
            runs[record.tist] = Run(
                record.tist, "running", record.data_set, record.kind, record.source, record.options
            )
            changed_runs[record.tist] = None
        elif isinstance(record, RunEnd):
            run = runs.get(record.tist, Run(record.tist))
            runs[record.tist] = replace(run, state=record.state, report=record.report)
            changed_runs[record.tist] = None
        elif isinstance(record, DataSet):
            data_sets[record.tist] = fold_data_set(data_sets.get(record.tist), record)
            changed_sets[record.tist] = None
        elif isinstance(record, SeenSet):
            seen[record.key] = record
    return [runs[t] for t in changed_runs], [data_sets[t] for t in changed_sets], list(seen.values())


def _least(places: list[TextPlace]) -> list[TextPlace]:
    least: dict[str, TextPlace] = {}
    for place in places:
        held = least.get(place.text)
        if held is None or (place.tist, place.id) < (held.tist, held.id):
            least[place.text] = place
    return list(least.values())


