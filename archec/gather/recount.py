"""Recount: the report of a run that broke off, from its journal; what its own report does not know."""

from __future__ import annotations

import json
from collections.abc import Iterator

from archec.catalogue.records import FobiVisit, RunEnd, RunStart, TobiChange, decode
from archec.gather.recover import LastRun
from archec.gather.report import Report, kept_bytes
from archec.store.journal import read_batches

__all__ = ["recounted"]

_COUNTED = (b'{"type":"tobi"', b'{"type":"fobi"', b'{"type":"end"')


def recounted(last: LastRun, start: RunStart) -> Report:
    """The report as far as the run came: what its newest ``end`` line says, and what was journalled after it.

    Requests and bytes after that line are those of the visits that are in the journal: a redirect's hops and
    bodies that were not kept are not in it. A run that was not merged reads its data set again when it is resumed,
    and then finds the same what it has noted already: ``same`` is less by as much until then.
    """
    report = Report(start.tist, start.data_set, start.kind, start.source)
    if last.merged and last.report:
        report.restore(json.loads(last.report))
    ends = sum(isinstance(record, RunEnd) for record in _records(last))
    for record in _records(last):
        if isinstance(record, RunEnd):
            ends -= 1
        elif isinstance(record, FobiVisit):
            report.visited(record)
            if not ends:
                _add_bytes(report, record)
        elif not last.merged:
            _add_tobi(report, record)
    return report


def _records(last: LastRun) -> Iterator[TobiChange | FobiVisit | RunEnd]:
    for batch in read_batches(last.journal.path):
        for line in batch.lines:
            if line.startswith(_COUNTED):
                record = decode(line, f"{last.journal.path}, batch {batch.n}")
                if isinstance(record, (TobiChange, FobiVisit, RunEnd)):
                    yield record


def _add_bytes(report: Report, visit: FobiVisit) -> None:
    report.requests += 1
    report.fetched_bytes += kept_bytes(visit)
    report.stored_bytes += kept_bytes(visit)


def _add_tobi(report: Report, change: TobiChange) -> None:
    note = change.notes.get(report.data_set)
    if note is None:
        return
    report.tobis[note.kind] += 1
    if change.version is not None:
        report.tobis["same"] -= 1
    report.stored_bytes += kept_bytes(change)
