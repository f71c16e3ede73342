"""The export of one unit: its observations merged with its index, and what is new written.

Order of writing: records into files under temporary names; the files' bytes and then their names to disk; then
the new index in the place of the old one. A kill in between costs the work, never what the index says.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson

from archec.catalogue.interface import Catalogue
from archec.catalogue.open import open_catalogue
from archec.errors import ArchecError
from archec.export import records
from archec.export.bodies import EMPTY, Problem, Spoilt, digest_of_head, open_body
from archec.export.collect import collect
from archec.export.observations import Kind, Observation, observation_of
from archec.export.sorting import SortedLines
from archec.export.units import Unit
from archec.export.vault import IndexLine, Vault
from archec.export.visits import Visits
from archec.export.warcfile import Place, TempFile, WarcFile
from archec.store.durable import Disk, failure, fsync_dir
from archec.store.failpoints import hit
from archec.store.layout import Layout

__all__ = ["MOST_BYTES", "Job", "Outcome", "Tools", "check_stop", "export_unit"]

MOST_BYTES = 1 << 30
"""A WARC file is ended when it is so large; the specification's annex recommends 1 GB."""
_MOST_PROBLEMS = 10_000
_FLAT = orjson.OPT_APPEND_NEWLINE


class Tools(NamedTuple):
    """What every unit's export needs: the obi store, the catalogue's URL and what it is relative to, the vault, the
    file of visits (None: no revisits), a scratch folder; the first tist that counts, that of the archive's
    state; whether nothing is to be written."""

    layout: Layout
    url: str
    base: Path
    vault: Vault
    visits: Path | None
    scratch: Path
    since: int
    state: int
    dry: bool
    most: int = MOST_BYTES

    @property
    def stop(self) -> str:
        """The file whose being there tells every process to leave off."""
        return str(self.scratch / "stop")


class Job(NamedTuple):
    """A unit for a worker."""

    tools: Tools
    unit: Unit


@dataclass(slots=True)
class Outcome:
    """What became of a unit: records written by kind, and those that were there; payload bytes, bytes and names
    of WARC files; what could not be exported (``spoilt`` in all, the first ones in full)."""

    unit: Unit
    records: Counter[str] = field(default_factory=Counter)
    there: int = 0
    payload: int = 0
    written: int = 0
    files: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    spoilt: int = 0


def export_unit(job: Job) -> Outcome:
    """Exports one unit; to be called in any process, for different units at the same time."""
    tools = job.tools
    with ExitStack() as stack:
        catalogue: Catalogue = open_catalogue(tools.url, base=tools.base, read_only=True)
        stack.callback(catalogue.close)
        visits = stack.enter_context(Visits(tools.visits)) if tools.visits is not None else None
        wanted = stack.enter_context(SortedLines(tools.scratch))
        collect(catalogue, job.unit, visits, tools.since, tools.scratch, wanted, lambda: check_stop(tools))
        return _Export(tools, job.unit).run(wanted)


def check_stop(tools: Tools) -> None:
    """Raises :class:`ArchecError` where the export is to be left off."""
    if os.path.lexists(tools.stop):
        raise ArchecError("the export was left off")


class _Export:
    """One export of one unit."""

    def __init__(self, tools: Tools, unit: Unit) -> None:
        self._tools, self._unit, self._vault = tools, unit, tools.vault
        self._outcome = Outcome(unit)
        self._disk = Disk()
        self._number = 0
        self._stack = ExitStack()
        self._index: TempFile | None = None
        self._warcs: list[WarcFile] = []
        self._key = b""
        self._digests: dict[bytes, str] = {}

    def run(self, wanted: SortedLines) -> Outcome:
        """Merges, writes, publishes."""
        if self._nothing_new(wanted):
            return self._outcome
        self._outcome = Outcome(self._unit)
        with self._stack:
            for n, (prefix, seen, line) in enumerate(_merged(wanted, self._vault.lines(self._unit))):
                if n % 64 == 0:
                    check_stop(self._tools)
                self._forget(prefix)
                if line is not None:
                    self._keep(line)
                    self._outcome.there += seen is not None
                elif seen is not None:
                    self._add(prefix, seen)
            self._publish()
        return self._outcome

    def _nothing_new(self, wanted: SortedLines) -> bool:
        """Looks whether the index has it all, before anything is written; the common case in a nightly export."""
        for _, seen, line in _merged(wanted, self._vault.lines(self._unit)):
            if line is None:
                return False
            self._outcome.there += seen is not None
        return True

    def _forget(self, prefix: bytes) -> None:
        """Digests are only needed within one key of the index."""
        key = prefix.partition(b" ")[0]
        if key != self._key:
            self._key = key
            self._digests.clear()

    def _keep(self, line: IndexLine) -> None:
        value = orjson.loads(line.line[line.line.index(b"{") :])
        if value.get("mime") != "warc/revisit":
            self._digests[_uri(line.prefix)] = str(value.get("digest", ""))
        if not self._tools.dry:
            self._to_index(line.line)

    def _add(self, prefix: bytes, seen: Observation) -> None:
        outcome = self._outcome
        if self._tools.dry:
            outcome.records[seen.kind] += 1
            outcome.payload += seen.size if seen.kind in (Kind.RESPONSE, Kind.RESOURCE) else 0
            return
        try:
            place, digest = self._write(prefix, seen)
        except Spoilt as spoilt:
            self._digests.pop(_uri(prefix), None)  # what is unchanged from now on is not like the state before this
            outcome.spoilt += 1
            if len(outcome.problems) < _MOST_PROBLEMS:
                outcome.problems.append(spoilt.problem)
            return
        if place is None:
            return
        outcome.records[seen.kind] += 1
        revisits = seen.kind == Kind.REVISIT
        if not revisits:
            self._digests[_uri(prefix)] = digest
        value: Mapping[str, str] = {
            "mime": "warc/revisit" if revisits else _mime(seen),
            **_status(seen),
            "digest": digest,
            "length": str(place.length),
            "offset": str(place.offset),
            "filename": self._vault.filename(self._warcs[-1].temp.path),
        }
        self._to_index(prefix + b"," + orjson.dumps(value, option=_FLAT)[1:])

    def _write(self, prefix: bytes, seen: Observation) -> tuple[Place | None, str]:
        """Adds the record of an observation; no place for a revisit of what could not be exported."""
        if seen.kind == Kind.REVISIT:
            digest = self._digests.get(_uri(prefix), "")
            if not digest:
                return None, ""
            return self._warc().write(lambda writer: records.revisit(writer, seen, digest)), digest
        if seen.kind == Kind.REDIRECT:
            head = records.http_head(seen)
            block = digest_of_head(head.headers_buff)
            return self._warc().write(lambda writer: records.redirect(writer, seen, head, block)), EMPTY
        layout = self._tools.layout
        if seen.kind == Kind.RESOURCE:
            body = open_body(layout, seen.noted, seen.id, seen.md5)
            make = self._warc().write
            place = make(lambda writer: records.resource(writer, seen, body))
        else:
            head = records.http_head(seen)
            body = open_body(layout, seen.noted, seen.id, seen.md5, head.headers_buff)
            place = self._warc().write(lambda writer: records.response(writer, seen, head, body))
        self._outcome.payload += body.size
        return place, body.payload

    # -- files ------------------------------------------------------------------------------------

    def _warc(self) -> WarcFile:
        """The file that is written to; a new one where there is none, or it is large enough."""
        if self._warcs and self._warcs[-1].size < self._tools.most:
            return self._warcs[-1]
        if self._warcs:
            self._warcs[-1].temp.finish()
        else:
            self._number = self._vault.next_number(self._unit)
        path = self._vault.warc(self._unit, self._number + len(self._warcs))
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise failure(error, path.parent) from error
        if not self._warcs:
            fsync_dir(path.parent.parent, disk=self._disk)
        warc = WarcFile(path, self._disk)
        self._stack.enter_context(warc.temp)
        self._warcs.append(warc)
        warc.write(lambda writer: records.info(writer, self._unit, path.name, self._tools.state))
        return warc

    def _to_index(self, line: bytes) -> None:
        if self._index is None:
            self._index = self._stack.enter_context(TempFile(self._vault.index_path(self._unit), self._disk))
        self._index.write(line)

    def _publish(self) -> None:
        """All files first, then the index that names them."""
        if not self._warcs or self._index is None:
            return
        hit("export.before-files")
        for warc in self._warcs:
            warc.temp.publish()
            self._outcome.written += warc.size
            self._outcome.files.append(self._vault.filename(warc.temp.path))
            hit("export.after-file")
        hit("export.before-index")
        self._index.publish()
        hit("export.after-index")


def _merged(
    wanted: SortedLines, index: Iterator[IndexLine]
) -> Iterator[tuple[bytes, Observation | None, IndexLine | None]]:
    """What is wanted and what is there, in order: of each place the observation, the line, or both."""
    sides: list[Iterator[tuple[bytes, int, object]]] = [
        ((line.prefix, 0, line) for line in index),
        ((prefix, 1, seen) for prefix, seen in map(observation_of, wanted)),
    ]
    waiting: IndexLine | None = None
    last = b""
    for prefix, _, item in heapq.merge(*sides, key=lambda row: (row[0], row[1])):
        if isinstance(item, IndexLine):
            if waiting is not None:
                yield waiting.prefix, None, waiting
            waiting = item
        elif isinstance(item, Observation):
            if waiting is not None and waiting.prefix != prefix:
                yield waiting.prefix, None, waiting
                waiting = None
            if prefix != last:
                yield prefix, item, waiting
            last, waiting = prefix, None
    if waiting is not None:
        yield waiting.prefix, None, waiting


def _uri(prefix: bytes) -> bytes:
    return prefix.partition(b"{")[2]


def _mime(seen: Observation) -> str:
    if seen.kind == Kind.REDIRECT or seen.kind == Kind.RESPONSE:
        declared = next((value for name, value in seen.headers if name.lower() == "content-type"), "")
        return records.media_type(declared.partition(";")[0].strip()) or "unk"
    return records.media_type(seen.type) or "application/octet-stream"


def _status(seen: Observation) -> dict[str, str]:
    """The HTTP status, for those that have one in the record."""
    if seen.kind in (Kind.REVISIT, Kind.RESOURCE):
        return {}
    return {"status": str(seen.status or (302 if seen.kind == Kind.REDIRECT else 200))}
