"""The life cycle of runs of any kind: how one follows another and ends, and the report of an interrupted run, recounted
from its journal. A run that failed before it began has no tist and no journal; a file records it until the next one
begins.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from archec.archive.claims import judge_again
from archec.archive.commit import CommitItem, Committer, committing
from archec.archive.evidence import evidence_of
from archec.archive.journal_records import records, records_in
from archec.archive.opening import Archive, LastRun, last_run
from archec.archive.report import Report, RunReport, kept_bytes
from archec.archive.retracted_visits import conclude_without
from archec.archive.unfinished_downloads import left_parts
from archec.catalogue.documents import built, read
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ClockReading, DataSetRead, IngestDone, ObiChange, RunEnd, RunStart
from archec.catalogue.model import DataSet, Run
from archec.config import Config
from archec.errors import ArchecError, BadName, CatalogueError, LockHeld, NotHeld, RetractedDataSet, UsageError
from archec.files import read_file
from archec.paging import paged
from archec.store.durable import atomic_write
from archec.store.journal import read_batches
from archec.store.layout import JournalFile
from archec.store.writer import sweep_parts, sweep_runs
from archec.tist import MAX_TIST, parse_when, run_number, stamp

_PAGE = 50
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def newest_first(catalogue: Catalogue, before: int = MAX_TIST + 1) -> Iterator[Run]:
    """Yields the runs with a tist less than ``before``, newest first. Reads them page by page."""
    return paged(lambda tist: catalogue.newest_runs(tist, _PAGE), before, lambda run: run.tist)


def stored_before(catalogue: Catalogue, run: int = MAX_TIST + 1) -> int:
    """Bytes written by the runs before ``run``: the newest total in a report, plus those of the runs after it."""
    stored = 0
    for earlier in newest_first(catalogue, run):
        try:
            report = read(RunReport, earlier.report or "{}")
        except CatalogueError as error:
            raise CatalogueError(f"the report of run {earlier.tist} cannot be read: {error}") from error
        if "stored_bytes" in report.totals:
            return stored + report.totals["stored_bytes"]
        stored += report.stored_bytes
    return stored


def run_named(newest: Callable[[], int], text: str) -> int | None:
    """The software tist of the run that is named by it or by its date, whether there is one or not, or ``newest()``
    for ``last``. None for any other text."""
    text = text.strip()
    if text.lower() == "last":
        return newest()
    run = run_number(text)
    with suppress(BadName):
        return parse_when(text) if run is None else run
    return None


def known_run(catalogue: Catalogue, tist: int) -> Run:
    """The run with this software tist. Raises NotHeld if there is none."""
    run = catalogue.run(tist)
    if run is None:
        raise NotHeld(f"there is no run {tist}", hint="'archec runs' lists them")
    return run


def newest_gathering(catalogue: Catalogue) -> int:
    """The newest run that is a gathering. Raises :class:`NotHeld` if there is none."""
    run = next((run for run in newest_first(catalogue) if run.kind == "gather"), None)
    if run is None:
        raise NotHeld("this archive has no gathering yet", hint="'archec runs' lists all runs")
    return run.tist


def recounted(last: LastRun, start: RunStart) -> Report:
    """Recounts the report of an interrupted run: that of its last ``end`` line, plus what was journalled after it.

    Requests and bytes after that line are those of the visits in the journal, without redirect hops and bodies that
    were not kept. A run that was not merged reads its data set again when it is resumed, and then counts what it has
    already noted as unchanged; until then ``same`` is too small by that number.
    """
    report = Report(start.tist, start.data_set, start.form, start.source, merged=last.merged)
    is_ingest, ingested = start.kind == "fileset", Counter[str]()
    if last.report and (last.merged or is_ingest):
        report.restore(built(RunReport, last.report))
    else:
        report.seconds.update(last.report.get("seconds", {}))
    since = until = requests = received = stored = 0
    for batch in read_batches(last.journal.path):
        until = batch.stamp
        since = since or until
        for record in records_in(batch, last.journal.path, ObiChange, IngestDone, RunEnd):
            if isinstance(record, RunEnd):
                since, requests, received, stored = until, 0, 0, 0
                ingested.clear()
            elif isinstance(record, IngestDone):
                ingested[record.ingest.status] += 1
            elif start.kind == "retract":
                continue
            elif isinstance(record, ObiChange) and record.kind == "fobi":
                report.visited(record)
                requests += 1
                received += kept_bytes(record)
            elif isinstance(record, ObiChange) and record.kind == "fileset":
                stored += kept_bytes(record)
            elif isinstance(record, ObiChange) and not last.merged:
                _add_tobi(report, record)
    report.requests += requests
    report.fetched_bytes += received
    report.stored_bytes += received + stored
    if is_ingest:
        report.filesets = dict(ingested + Counter(last.report.get("filesets", {})))
    if until > since:
        phase = "filesets" if is_ingest else "files" if report.merged else "templates"
        report.seconds[phase] = report.seconds.get(phase, 0.0) + until - since
    return report


def _add_tobi(report: Report, change: ObiChange) -> None:
    note = change.notes.get(report.data_set)
    if note is None:
        return
    report.tobis[note.kind] += 1
    if change.version is not None:
        report.tobis["same"] -= 1
    report.stored_bytes += kept_bytes(change)


# -- between two runs --------------------------------------------------------------------------


def read_clock() -> ClockReading:
    """The machine's clock now, and the time since it was booted, if available; every run records it."""
    try:
        return ClockReading(int(time.time()), _BOOT.read_text().strip(), time.clock_gettime(time.CLOCK_BOOTTIME))
    except (OSError, AttributeError):
        return ClockReading(int(time.time()))


def clock_of(journal: JournalFile) -> ClockReading:
    """The clock recorded at the beginning of a run, or the run's tist if there is none."""
    start = next(records(journal.path, RunStart), None)
    return (start and start.clock) or ClockReading(journal.tist)


def next_run(archive: Archive) -> int:
    """Returns the software tist for a new run. Removes the temporary files of the newest run, and closes its journal if
    it is unfinished: it can no longer be resumed."""
    last = last_run(archive.layout)
    if last is None:
        return stamp(None)
    sweep(archive, last)
    if not last.journal.finished:
        close_interrupted_run(archive, last)
    return stamp(last.journal.tist)


def sweep(archive: Archive, last: LastRun) -> None:
    """Removes the temporary files and the scratch space of a killed run, except downloads of data sets, which the next
    ingest continues."""
    run, layout = last.journal.tist, archive.layout
    sweep_runs(layout)
    shutil.rmtree(archive.work / str(run), ignore_errors=True)
    for left in archive.work.glob(f"{run}.*"):
        with suppress(OSError):
            left.unlink()
    if not last.journal.finished:
        data_set = last.start.data_set if last.start is not None else 0
        sweep_parts(layout, {run, data_set or run}, left_parts(archive.work))


def end_run(catalogue: Catalogue, committer: Committer, report: Report) -> None:
    """Journals the end of a run. Completes its journal, unless the run ended with its budget and can be resumed."""
    committer.commit()
    stored = stored_before(catalogue, report.run) + report.stored_bytes
    report.totals = {"stored_bytes": stored, **catalogue.counts()._asdict()}
    committer.add(CommitItem(RunEnd(report.run, report.state, report.as_value())))
    committer.commit()
    if report.state != "budget":
        committer.finish()


def stop_run(committer: Committer, report: Report, error: BaseException) -> None:
    """Journals why a run stops and how far it got, if the journal can be written to."""
    if isinstance(error, ArchecError):
        report.state, report.message = "failed", error.message
    else:
        report.state = "interrupted"
    # The cause of the failure may prevent this as well; it is reported by its own error.
    with suppress(ArchecError):
        committer.note(RunEnd(report.run, report.state, report.as_value()))


def close_interrupted_run(archive: Archive, last: LastRun) -> None:
    """Closes the journal of a run that is not resumed."""
    with committing(archive, last.journal.tist) as committer:
        if last.start is None or last.state not in ("running", "failed", "interrupted"):
            committer.finish()
            return
        report = recounted(last, last.start)
        report.state = "interrupted"
        report.message = str(last.report.get("message", "")) if last.state == "failed" else ""
        _conclude(archive, last, last.start, committer)
        end_run(archive.catalogue, committer, report)


def _conclude(archive: Archive, last: LastRun, start: RunStart, committer: Committer) -> None:
    """Draws the conclusions of a run that is not resumed: what it noted stays, but it causes no losses. A retraction,
    or a decision about losses, is completed."""
    catalogue = archive.catalogue
    evidence = evidence_of(catalogue)
    if "visits" in start.options:
        conclude_without(archive, int(start.options["visits"]), committer)
    elif start.kind != "gather":
        judge_again(catalogue, None, evidence, start.tist, committer)
    elif not last.merged and start.data_set:
        noted = {claim.run for record in _changes(last) for claim in record.claims if claim.tist == start.data_set}
        known = any(item.whole and item.key == (start.data_set, run) for item in evidence.data_sets for run in noted)
        part = DataSet(start.data_set, start.tist, PurePath(start.source).name, "", start.sha256, whole=False)
        if noted and not known:
            evidence = evidence.with_data_set(part)
        judge_again(catalogue, (record.id for record in _changes(last)), evidence, start.tist, committer)
        if noted and not known:
            committer.add(CommitItem(DataSetRead(part)))


def _changes(last: LastRun) -> Iterator[ObiChange]:
    return records(last.journal.path, ObiChange, obis="tobi")


class Unbegun(Struct, frozen=True):
    """A run that failed before it began: time and reason."""

    time: Annotated[int, Meta(ge=0, le=MAX_TIST)]
    message: str


def unbegun(config: Config) -> Unbegun | None:
    """The newest run, if it failed before it began; None if it began, or if the file cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        return msgspec.json.decode(read_file(_path(config)), type=Unbegun)
    return None


@contextmanager
def beginning(config: Config) -> Iterator[Callable[[], None]]:
    """Yields a function to call when a run begins. If the block fails before that, the error is recorded in a file.

    A held lock, a wrong command line and a retracted data set do not count as failures of a run. If the file cannot be
    written, only the error itself is reported.
    """
    path, has_begun = _path(config), False

    def begins() -> None:
        nonlocal has_begun
        has_begun = True
        with suppress(OSError):
            path.unlink(missing_ok=True)

    try:
        yield begins
    except (LockHeld, UsageError, BadName, RetractedDataSet):
        raise
    except ArchecError as error:
        if not has_begun:
            with suppress(OSError, ArchecError):
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, msgspec.json.encode(Unbegun(int(time.time()), error.message)))
        raise


def _path(config: Config) -> Path:
    return config.memory("unbegun.json")
