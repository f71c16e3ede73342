"""The export of one unit: merges its observations with its index, and writes what is new.

The order of writing: records to files under temporary names; then these files are synced and renamed; then the new
index replaces the old one. A kill in between costs work, but the index never names a file that does not exist.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from warcio.recordloader import ArcWarcRecord

from archec.archive.warc_records import record_of
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.errors import ArchecError, CorruptArchive, NotHeld, StorageFailed, is_out_of_resources, storage_errors
from archec.export.checking import Extents, VaultFault
from archec.export.observations import Visits, collect, observation_of
from archec.export.units import Unit, UnitSelection
from archec.export.vault import TempFile, Vault, WarcFile
from archec.store.durable import Disk, fsync_dir, hit
from archec.store.layout import Layout
from archec.store.sorting import SortedLines
from archec.warc import records
from archec.warc.cdxj import IndexLine, index_line
from archec.warc.records import Contents, Observation

MAX_BYTES = 1 << 30
"""Size in bytes at which a new WARC file is begun; the annex of the specification recommends 1 GB."""
_MAX_NAMED = 10_000


class NotExported(NamedTuple):
    """An observation that could not be exported: ``code`` is ``corrupt``, ``missing`` or ``unreadable``, ``path`` is
    relative to the obi store."""

    code: str
    id: str
    tist: int
    path: str
    message: str


class Unusable(ArchecError):
    """The bytes of an observation are not those in the catalogue."""

    def __init__(self, failed: NotExported) -> None:
        super().__init__(failed.message)
        self.failed = failed


class ExportRequest(NamedTuple):
    """The contents and the directory of an export.

    ``since`` is the first tist to export. ``dry`` writes nothing. ``revisits`` includes the visits that found files
    unchanged. ``max_bytes`` is the size at which a new WARC file is begun.
    """

    folder: Path
    wanted: UnitSelection = UnitSelection()
    since: int = 0
    dry: bool = False
    revisits: bool = True
    max_bytes: int = MAX_BYTES


class ExportPlan(NamedTuple):
    """The environment for the export of every unit.

    ``url`` of the catalogue is relative to ``base``. ``visits`` is the file of visits, None without revisits.
    ``state`` is the tist of the archive's state.
    """

    layout: Layout
    url: str
    base: Path
    vault: Vault
    visits: Path | None
    scratch: Path
    state: int
    request: ExportRequest


@dataclass(slots=True)
class UnitResult:
    """The result of a unit: new records by kind and the number of existing ones; bytes of contents; bytes and names of
    new WARC files; observations that could not be exported (``failed`` is their number, ``named`` the first ones);
    faults of existing files."""

    records: dict[str, int] = field(default_factory=dict)
    existing: int = 0
    payload: int = 0
    written: int = 0
    files: list[str] = field(default_factory=list)
    named: list[NotExported] = field(default_factory=list)
    failed: int = 0
    faults: list[VaultFault] = field(default_factory=list)


def unit_exporter(plan: ExportPlan) -> Callable[[Unit], UnitResult]:
    """Returns the function that exports a unit. Any process may call it, for different units at the same time."""

    def export(unit: Unit) -> UnitResult:
        with open_catalogue(plan.url, base=plan.base, read_only=True) as catalogue:
            return export_unit(plan, catalogue, unit)

    return export


def export_unit(plan: ExportPlan, catalogue: Catalogue, unit: Unit) -> UnitResult:
    visits = Visits(plan.visits) if plan.visits is not None else None
    with SortedLines(plan.scratch) as wanted:
        collect(catalogue, plan.layout, unit, visits, plan.request.since, plan.scratch, wanted)
        return _UnitExport(plan, unit).run(wanted)


class _UnitExport:
    def __init__(self, plan: ExportPlan, unit: Unit) -> None:
        self._plan, self._unit, self._vault = plan, unit, plan.vault
        self._result = UnitResult()
        self._disk = Disk()
        self._number = 0
        self._stack = ExitStack()
        self._index: TempFile | None = None
        self._warcs: list[WarcFile] = []
        self._key = b""
        self._digests: dict[bytes, str] = {}
        """Payload digest of the last state of each URI with the current key, for revisits."""

    def run(self, wanted: SortedLines) -> UnitResult:
        """Merges, writes and publishes the unit."""
        if self._is_up_to_date(wanted):
            return self._result
        self._result, extents = UnitResult(), Extents()
        with self._stack:
            for prefix, seen, line in _merged(wanted, self._vault.lines(self._unit)):
                self._forget_digests(prefix)
                if line is not None:
                    extents.add(line)
                    self._keep(line)
                    self._result.existing += seen is not None
                elif seen is not None:
                    self._add(prefix, seen)
            self._result.faults += extents.faults(self._vault)
            self._publish()
        return self._result

    def _is_up_to_date(self, wanted: SortedLines) -> bool:
        """Whether the index is complete, which is the usual case of a nightly export. Writes nothing."""
        extents = Extents()
        for _, seen, line in _merged(wanted, self._vault.lines(self._unit)):
            if line is None:
                return False
            extents.add(line)
            self._result.existing += seen is not None
        self._result.faults += extents.faults(self._vault)
        return True

    def _forget_digests(self, prefix: bytes) -> None:
        key = prefix.partition(b" ")[0]
        if key != self._key:
            self._key = key
            self._digests.clear()

    def _keep(self, line: IndexLine) -> None:
        if payload := line.payload():
            self._digests[_uri(line.prefix)] = payload
        if not self._plan.request.dry:
            self._to_index(line.line)

    def _add(self, prefix: bytes, seen: Observation) -> None:
        result = self._result
        if self._plan.request.dry:
            result.records[seen.kind] = result.records.get(seen.kind, 0) + 1
            result.payload += seen.size if seen.kind in ("response", "resource") else 0
            return
        try:
            written = self._write(prefix, seen)
        except Unusable as error:
            self._digests.pop(_uri(prefix), None)  # later revisits must not refer to the state before this one
            result.failed += 1
            if len(result.named) < _MAX_NAMED:
                result.named.append(error.failed)
            return
        if written is None:
            return
        (offset, length), digest = written
        result.records[seen.kind] = result.records.get(seen.kind, 0) + 1
        if seen.kind != "revisit":
            self._digests[_uri(prefix)] = digest
        filename = self._vault.filename(self._warcs[-1].temp.path)
        self._to_index(index_line(prefix, seen, digest, offset, length, filename))

    def _write(self, prefix: bytes, seen: Observation) -> tuple[tuple[int, int], str] | None:
        """Writes the record of an observation; returns its place and payload digest. None for a revisit of a state
        that could not be exported."""
        if seen.kind == "revisit":
            digest = self._digests.get(_uri(prefix), "")
            return (self._warc().write(records.revisit(seen, digest)), digest) if digest else None
        if seen.kind == "metadata":
            block = records.loss_block(seen)
            return self._warc().write(records.loss(seen, block)), records.digest_of(block)
        record, contents = _record(self._plan.layout, seen)
        self._result.payload += contents.size if contents is not None else 0
        return self._warc().write(record), contents.payload if contents is not None else records.EMPTY

    def _warc(self) -> WarcFile:
        """The current file, or a new one if there is none or the current one is large enough."""
        if self._warcs and self._warcs[-1].temp.size < self._plan.request.max_bytes:
            return self._warcs[-1]
        if self._warcs:
            self._warcs[-1].temp.finish()
        else:
            self._number = self._vault.next_number(self._unit)
        path = self._vault.warc(self._unit, self._number + len(self._warcs))
        with storage_errors(path.parent):
            path.parent.mkdir(exist_ok=True)
        if not self._warcs:
            fsync_dir(path.parent.parent, disk=self._disk)
        warc = WarcFile(path, self._disk)
        self._stack.enter_context(warc.temp)
        self._warcs.append(warc)
        warc.write(records.warcinfo(self._unit.handle, path.name, self._plan.state))
        return warc

    def _to_index(self, line: bytes) -> None:
        if self._index is None:
            self._index = self._stack.enter_context(TempFile(self._vault.index_path(self._unit), self._disk))
        self._index.write(line)

    def _publish(self) -> None:
        """Publishes all WARC files, then the index that names them."""
        if not self._warcs or self._index is None:
            return
        hit("export.before-files")
        for warc in self._warcs:
            warc.temp.publish()
            self._result.written += warc.temp.size
            self._result.files.append(self._vault.filename(warc.temp.path))
            hit("export.after-file")
        hit("export.before-index")
        self._index.publish()
        hit("export.after-index")


def _record(layout: Layout, seen: Observation) -> tuple[ArcWarcRecord, Contents | None]:
    """The record of a state, and its contents; None for a redirect.

    Raises Unusable if they are missing, unreadable, or not those of the catalogue.
    """
    path = layout.path(seen.at or seen.noted, seen.id)

    def unusable(code: str, message: str) -> Unusable:
        return Unusable(NotExported(code, seen.id, seen.noted, path, message))

    try:
        record, contents = record_of(layout, seen)
    except NotHeld:
        raise unusable("missing", "is not there") from None
    except CorruptArchive as error:
        raise unusable("corrupt", error.message) from error
    except StorageFailed as error:
        if is_out_of_resources(error):
            raise
        raise unusable("unreadable", error.message) from error
    if contents is not None and contents.sha256 != seen.sha256:
        contents.stream.close()
        raise unusable("corrupt", f"has the sha256 {contents.sha256}, not {seen.sha256}")
    return record, contents


def _merged(
    wanted: SortedLines, index: Iterator[IndexLine]
) -> Iterator[tuple[bytes, Observation | None, IndexLine | None]]:
    """Yields observations and index lines with the same prefix together, in order; one of the two may be None."""
    lines = ((line.prefix, line) for line in index)
    by_prefix = itemgetter(0)
    rows: Iterator[tuple[bytes, Observation | IndexLine]] = heapq.merge(
        lines, map(observation_of, wanted), key=by_prefix
    )
    for prefix, group in groupby(rows, by_prefix):
        line: IndexLine | None = None
        seen: Observation | None = None
        for _, item in group:
            if isinstance(item, Observation):
                seen = seen or item
            else:
                if line is not None:
                    yield prefix, None, line
                line = item
        yield prefix, seen, line


def _uri(prefix: bytes) -> bytes:
    return prefix.partition(b"{")[2]
