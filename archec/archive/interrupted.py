"""The end of a run that was interrupted and is not carried on with: the next run closes its journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import PurePath

from archec.archive.commit import CommitItem, Committer
from archec.archive.conclusions import evidence_of, judge_again
from archec.archive.follow import LastRun
from archec.archive.opening import Archive
from archec.archive.report import Report, Totals
from archec.archive.retracting import conclude_without
from archec.archive.runs import recounted, stored_before
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import DataSet
from archec.catalogue.records import DataSetRead, ObiChange, RunEnd, RunStart, decode
from archec.store.journal_reader import read_batches
from archec.store.journal_writer import JournalWriter
from archec.store.writer import Writer


def close_interrupted_run(archive: Archive, last: LastRun) -> None:
    """Closes the journal of a run that is not resumed."""
    run, catalogue = last.journal.tist, archive.catalogue
    with ExitStack() as stack:
        journal = stack.enter_context(JournalWriter(archive.layout, run, head=catalogue.position().head))
        writer = stack.enter_context(Writer(archive.layout))
        if last.start is not None and last.state in ("running", "failed", "interrupted"):
            report = recounted(last, last.start)
            report.state = "interrupted"
            report.message = _message_of(last)
            report.totals = totals(catalogue, report)
            committer = Committer(writer, journal, catalogue, run=run)
            _conclude(archive, last, last.start, committer)
            committer.add(CommitItem(RunEnd(run, report.state, report.as_value())))
            committer.commit()
        journal.finish()


def _conclude(archive: Archive, last: LastRun, start: RunStart, committer: Committer) -> None:
    """What a run has noted stays; but it did not come to its end, so that what is missing is missing for no reason.

    A retraction, or a decision about losses, is finished.
    """
    catalogue = archive.catalogue
    evidence = evidence_of(catalogue)
    if "visits" in start.options:
        conclude_without(archive, int(start.options["visits"]), start.tist, committer)
    elif start.kind != "gather":
        judge_again(catalogue, None, evidence, start.tist, committer)
    elif not last.merged and start.data_set:
        noted = _noted(last)
        known = any(item.whole and item.key == (start.data_set, run) for item in evidence.data_sets for run in noted)
        part = DataSet(start.data_set, start.tist, PurePath(start.source).name, "", start.sha256, whole=False)
        if noted and not known:
            evidence = evidence.with_data_set(part, (), None)
        judge_again(catalogue, _touched(last), evidence, start.tist, committer)
        if noted and not known:
            committer.add(CommitItem(DataSetRead(part)))


def _noted(last: LastRun) -> set[int]:
    """The data sets, by their runs, of whose claims the run has journalled some at its own data set's date."""
    tist = last.start.data_set if last.start is not None else 0
    return {claim.run for record in _changes(last) for claim in record.claims if claim.tist == tist}


def _touched(last: LastRun) -> Iterator[str]:
    """The tobis of which the run noted something, each perhaps more than once."""
    return (record.id for record in _changes(last))


def _changes(last: LastRun) -> Iterator[ObiChange]:
    for batch in read_batches(last.journal.path):
        for line in batch.lines:
            if line.startswith(b'{"type":"obi","kind":"tobi"'):
                record = decode(line, f"{last.journal.path}, batch {batch.n}")
                if isinstance(record, ObiChange):
                    yield record


def _message_of(last: LastRun) -> str:
    """Why the run failed, where it could say so."""
    return str(last.report.get("message", "")) if last.state == "failed" else ""


def totals(catalogue: Catalogue, report: Report) -> Totals:
    """What the archive holds now that this run is over."""
    return Totals(stored_before(catalogue, report.run) + report.stored_bytes, catalogue.counts())
