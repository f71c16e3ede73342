"""The lines of a run's journal: what they mean, and their JSON form (journal version 2).

A journal is all that the catalogue derives from (design, invariant 3), so a line says what changed,
not what was computed on the way. One JSON object a line, with its ``type``:

=============  =====================================================================================
``run``        the run begins: software tist, kind, data set, options
``obi``        entries put into and dropped from an obi's history, the version they speak of, a visit
``set``        bytes under a key: a coverage, or a list of ids
``data-set``   the data set was read and merged: from now on its absences count
``manifest``   files of a fileset's manifest, some hundred at a time
``ingest``     what an ingest of a base URL came to
``host``       what is known against a host from now on: until when it is not to be asked, how often it failed
``held-back``  losses that wait for a decision
``retract``    a data set, or a run's visits to files, are not to be believed, or are again
``fork``       the archive goes on from an older copy that was restored
``end``        the run ended (or paused): state and report
=============  =====================================================================================

Lines come in batches; each batch is closed by a line of type ``batch``
(:mod:`archec.store.journal_writer`), whose stamp is the moment at which it became visible.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
from msgspec import Struct

from archec.catalogue.codec import text_of
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
    """The clock (Unix seconds) at a moment; ``up`` is the time since the machine was booted, in seconds, and ``boot``
    the id of that boot, where the system has one."""

    time: int
    boot: str = ""
    up: float = 0.0


class RunStart(Struct, frozen=True, tag_field="type", tag="run"):
    """A run begins. ``data_set`` is the tist of its data set, ``form`` ``directory`` or ``tarball``, ``source`` its
    absolute path, ``sha256`` that of a tarball, ``options`` what it was asked to do, ``software`` the version of
    archec, ``clock`` the clock when it began."""

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
    """What a run noted of an obi.

    ``put`` are entries of its history (None: lost) with a note each, ``drop`` entries that go; ``version`` describes
    the content that was seen. ``kept`` says where bytes were put on disk (tist to sha256) where that is not for each
    entry of ``put`` under its own tist. ``claims`` are what data sets say of a tobi; ``place`` is where it was last
    seen, if that is not the place of its newest claim, and ``settled`` since when, if that is not its date. ``visit``
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
    """The data set was read and merged."""

    data_set: DataSet


class ManifestNoted(Struct, frozen=True, tag_field="type", tag="manifest"):
    """A :class:`ManifestPart`."""

    part: ManifestPart


class IngestDone(Struct, frozen=True, tag_field="type", tag="ingest"):
    """An :class:`Ingest`."""

    ingest: Ingest


class HostNoted(Struct, frozen=True, tag_field="type", tag="host"):
    """What is known against a host from now on."""

    host: HostState


class LossesHeldBack(Struct, frozen=True, tag_field="type", tag="held-back"):
    """Losses wait for a decision; takes the place of an earlier line for the same run and kind."""

    held_back: HeldBack


class Retraction(Struct, frozen=True, tag_field="type", tag="retract"):
    """The data set that ``run`` read first is not to be believed, for a ``reason``; with ``undo`` it is again. With
    ``visits`` it is not the data set, but the run's visits to files."""

    run: int
    reason: str
    undo: bool = False
    visits: bool = False


class Link(Struct, frozen=True):
    """A batch of the chain: its run, its number, its sha256."""

    run: int
    batch: int
    sha256: str


class Fork(Struct, frozen=True, tag_field="type", tag="fork"):
    """From ``run`` on the archive goes on from an older copy that was restored, for a ``reason``: what came behind the
    batch ``kept`` up to the batch ``lost``, as a catalogue or a seal knew it, is not there any more."""

    run: int
    kept: Link
    lost: Link
    reason: str

    def as_value(self) -> dict[str, Any]:
        """As JSON values."""
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
    """One journal line without its newline; CatalogueError for what JSON cannot hold."""
    return text_of(record)


def decode(line: bytes, where: str = "journal") -> Record:
    """The record of a journal line; CorruptJournal, naming ``where``, if it is none."""
    try:
        record: Record = _decoder.decode(line)
        if isinstance(record, SetAdded):
            record.keyed()
        return record
    except (msgspec.MsgspecError, ValueError, zlib.error) as error:
        raise CorruptJournal(f"{where}: not a journal line: {error}") from error
