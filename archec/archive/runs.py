"""What earlier runs did: their reports, and the report of one that broke off, counted again from its journal."""

from __future__ import annotations

import json
from collections.abc import Iterator

from archec.archive.follow import LastRun
from archec.archive.report import Report, kept_bytes
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Run
from archec.catalogue.records import ObiChange, RunEnd, RunStart, decode
from archec.errors import CatalogueError
from archec.store.journal_reader import JournalBatch, JournalFile, read_batches
from archec.tist import MAX_TIST

_PAGE = 50
_COUNTED = (b'{"type":"obi"', b'{"type":"end"')


def newest_first(catalogue: Catalogue, before: int = MAX_TIST + 1) -> Iterator[Run]:
    """The runs with tist < ``before``, newest first; page by page."""
    page = catalogue.newest_runs(before, _PAGE)
    while page:
        yield from page
        page = catalogue.newest_runs(page[-1].tist, _PAGE)


def stored_before(catalogue: Catalogue, run: int = MAX_TIST + 1) -> int:
    """Bytes that the runs before ``run`` wrote: the newest total that is known, and what came after it."""
    stored = 0
    for earlier in newest_first(catalogue, run):
        try:
            report = json.loads(earlier.report or "{}")
            totals = report.get("totals") or {}
            if totals:
                return stored + int(totals["stored_bytes"])
            stored += int(report.get("stored_bytes", 0))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CatalogueError(f"the report of run {earlier.tist} cannot be read: {error}") from error
    return stored


def recounted(last: LastRun, start: RunStart) -> Report:
    """The report as far as the run came: what its newest ``end`` line says, and what was journalled after it.

    Requests and bytes after that line are those of the visits that are in the journal: a redirect's hops and
    bodies that were not kept are not in it. A run that was not merged reads its data set again when it is resumed,
    and then finds the same what it has noted already: ``same`` is less by as much until then.
    """
    report = Report(start.tist, start.data_set, start.form, start.source, merged=last.merged)
    if last.merged and last.report:
        report.restore(last.report)
    else:
        report.seconds.update(last.report.get("seconds", {}))
    since = until = requests = stored = 0
    for batch in read_batches(last.journal.path):
        until = batch.stamp
        since = since or until
        for record in _records(batch, last.journal):
            if isinstance(record, RunEnd):
                since, requests, stored = until, 0, 0
            elif start.kind == "retract":
                continue
            elif record.kind == "fobi":
                report.visited(record)
                requests += 1
                stored += kept_bytes(record)
            elif not last.merged:
                _add_tobi(report, record)
    report.requests += requests
    report.fetched_bytes += stored
    report.stored_bytes += stored
    if until > since:
        phase = "files" if report.merged else "templates"
        report.seconds[phase] = report.seconds.get(phase, 0.0) + until - since
    return report


def _records(batch: JournalBatch, journal: JournalFile) -> Iterator[ObiChange | RunEnd]:
    for line in batch.lines:
        if line.startswith(_COUNTED):
            record = decode(line, f"{journal.path}, batch {batch.n}")
            if isinstance(record, (ObiChange, RunEnd)):
                yield record


def _add_tobi(report: Report, change: ObiChange) -> None:
    note = change.notes.get(report.data_set)
    if note is None:
        return
    report.tobis[note.kind] += 1
    if change.version is not None:
        report.tobis["same"] -= 1
    report.stored_bytes += kept_bytes(change)
