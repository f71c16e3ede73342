"""The lines of a run's journal: their meaning, their JSON format (journal version 2), and what they change.

The catalogue is derived from journals alone (design, invariant 3), so each line says what changed. Each is a JSON
object with a ``type``:

=============  =====================================================================================
``run``        the run begins: software tist, kind, data set, options
``obi``        entries put into and dropped from an obi's history, the version that they refer to, a visit
``set``        bytes under a key: a coverage, or a list of ids
``data-set``   the data set was read and merged: from now on its absences count
``manifest``   some hundred files of a fileset's manifest
``ingest``     the result of an ingest of a base URL
``host``       the state of a host from now on: until when it must not be asked, how often it failed
``held-back``  losses that await a decision
``retract``    a data set, or a run's visits to files, no longer count, or count again
``fork``       the archive continues from an older copy that was restored
``end``        the run ended (or paused): state and report
=============  =====================================================================================

Lines are written in batches. Each batch ends with a line of type ``batch`` (:mod:`archec.store.journal`), whose
stamp is the moment at which it became visible. :func:`changes_of` derives from a batch what it changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from archec.catalogue.documents import text_of
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import (
    Changes,
    Claim,
    DataSet,
    HeldBack,
    HostState,
    Ingest,
    KeyedSet,
    Kind,
    ManifestPart,
    Note,
    Obi,
    Position,
    Run,
    Version,
    Visit,
    Visited,
)
from archec.errors import CorruptJournal

JOURNAL_VERSION = 2
_Key = tuple[Kind, str]


class ClockReading(Struct, frozen=True, omit_defaults=True):
    """A reading of the clock (Unix seconds). ``up`` is the time since the machine was booted, in seconds, ``boot`` the
    id of that boot; empty if the system has none."""

    time: int
    boot: str = ""
    up: float = 0.0


class RunStart(Struct, frozen=True, tag_field="type", tag="run"):
    """A run begins. ``data_set`` is the tist of its data set, ``form`` ``directory`` or ``tarball``, ``source`` its
    absolute path, ``sha256`` that of a tarball, ``options`` the options of the run, ``software`` the version of archec,
    ``clock`` the clock at the start."""

    tist: int
    journal: int = JOURNAL_VERSION
    kind: str = "gather"
    data_set: int = 0
    form: str = "directory"
    source: str = ""
    sha256: str = ""
    options: dict[str, Any] = {}
    software: str = ""
    clock: ClockReading | None = None


class ObiChange(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="obi"):
    """What a run noted about an obi.

    ``put`` has new entries of its history (None: lost), each with a note, ``drop`` the entries to remove. ``version``
    describes the contents that were seen. ``kept`` says which bytes were stored under which tist; None if each entry of
    ``put`` is stored under its own. ``claims`` are what data sets say about a tobi. ``place`` is where it was last
    seen, if not at the place of its newest claim, and ``settled`` since when, if not since that claim's date. ``visit``
    is a visit to a fobi, which is ``due`` again from that tist on.
    """

    kind: Kind
    id: str
    handle: str = ""
    put: dict[int, str | None] = {}
    drop: tuple[int, ...] = ()
    version: Version | None = None
    notes: dict[int, Note] = {}
    visit: Visit | None = None
    due: int = 0
    claims: tuple[Claim, ...] = ()
    place: str = ""
    settled: int = 0
    kept: dict[int, str] | None = None


class SetAdded(Struct, frozen=True, tag_field="type", tag="set"):
    """A :class:`KeyedSet`; ``data`` is compressed with zlib."""

    key: str
    data: bytes

    @classmethod
    def of(cls, item: KeyedSet) -> SetAdded:
        return cls(item.key, zlib.compress(item.data, 6))

    def keyed(self) -> KeyedSet:
        return KeyedSet(self.key, zlib.decompress(self.data))


class DataSetRead(Struct, frozen=True, tag_field="type", tag="data-set"):
    data_set: DataSet


class ManifestNoted(Struct, frozen=True, tag_field="type", tag="manifest"):
    part: ManifestPart


class IngestDone(Struct, frozen=True, tag_field="type", tag="ingest"):
    ingest: Ingest


class HostNoted(Struct, frozen=True, tag_field="type", tag="host"):
    host: HostState


class LossesHeldBack(Struct, frozen=True, tag_field="type", tag="held-back"):
    """Losses that await a decision. Replaces an earlier line for the same run and kind."""

    held_back: HeldBack


class Retraction(Struct, frozen=True, tag_field="type", tag="retract"):
    """The data set that ``run`` read first (with ``visits``: the run's visits to files) no longer counts, for a
    ``reason``. With ``undo`` it counts again."""

    run: int
    reason: str
    undo: bool = False
    visits: bool = False


class ChainLink(Struct, frozen=True):
    """A batch of the chain: its run, number and sha256."""

    run: int
    batch: int
    sha256: str


class Fork(Struct, frozen=True, tag_field="type", tag="fork"):
    """From ``run`` on the archive continues from an older copy that was restored, for a ``reason``. The batches after
    ``kept``, up to the batch ``lost`` that a catalogue or a seal knew, no longer exist."""

    run: int
    kept: ChainLink
    lost: ChainLink
    reason: str

    def as_value(self) -> dict[str, Any]:
        ends = {"kept": msgspec.structs.asdict(self.kept), "lost": msgspec.structs.asdict(self.lost)}
        return {"run": self.run, **ends, "reason": self.reason}


class RunEnd(Struct, frozen=True, tag_field="type", tag="end"):
    """A run ended in ``state`` (see :class:`archec.catalogue.model.Run`), with its report."""

    tist: int
    state: str
    report: dict[str, Any]


Record = (
    RunStart | ObiChange | SetAdded | DataSetRead | LossesHeldBack | Retraction | HostNoted | ManifestNoted | IngestDone
    | Fork | RunEnd
)  # fmt: skip

_decoder = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """Encodes a record as a journal line without its newline. Raises CatalogueError if JSON cannot hold it."""
    return text_of(record)


def decode(line: bytes, where: str = "journal") -> Record:
    """Decodes a journal line. Raises CorruptJournal, with ``where`` in its message, if it is not valid."""
    try:
        record: Record = _decoder.decode(line)
        if isinstance(record, SetAdded):
            record.keyed()
        return record
    except (msgspec.MsgspecError, ValueError, zlib.error) as error:
        raise CorruptJournal(f"{where}: not a journal line: {error}") from error


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
