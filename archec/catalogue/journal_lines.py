"""The lines of a run's journal: their meaning and JSON format (journal version 2).

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

Lines are written in batches. Each batch ends with a line of type ``batch`` (:mod:`archec.store.journal_writer`), whose
stamp is the moment at which it became visible.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
from msgspec import Struct

from archec.catalogue.documents import text_of
from archec.catalogue.model import (
    Claim,
    DataSet,
    HeldBack,
    HostState,
    Ingest,
    KeyedSet,
    Kind,
    ManifestPart,
    Note,
    Version,
    Visit,
)
from archec.errors import CorruptJournal

JOURNAL_VERSION = 2


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
