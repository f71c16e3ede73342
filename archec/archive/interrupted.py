"""The end of a run that was interrupted and is not carried on with: the next run closes its journal."""

from __future__ import annotations

from contextlib import ExitStack

from archec.archive.commit import CommitItem, Committer
from archec.archive.follow import LastRun
from archec.archive.opening import Archive
from archec.archive.report import Report, Totals
from archec.archive.runs import recounted, stored_before
from archec.catalogue.interface import Catalogue
from archec.catalogue.records import RunEnd
from archec.store.journal_writer import JournalWriter
from archec.store.writer import Writer


def close_interrupted_run(archive: Archive, last: LastRun) -> None:
    """Closes the journal of a run that is not resumed."""
    run, catalogue = last.journal.tist, archive.catalogue
    with ExitStack() as stack:
        journal = stack.enter_context(JournalWriter(archive.layout, run, head=catalogue.position().head))
        writer = stack.enter_context(Writer(archive.layout))
        if last.start is not None and last.state in ("running", "failed"):
            report = recounted(last, last.start)
            report.state = "interrupted"
            report.message = _message_of(last)
            report.totals = totals(catalogue, report)
            committer = Committer(writer, journal, catalogue, run=run)
            committer.add(CommitItem(RunEnd(run, report.state, report.as_value())))
            committer.commit()
        journal.finish()


def _message_of(last: LastRun) -> str:
    """Why the run failed, where it could say so."""
    return str(last.report.get("message", "")) if last.state == "failed" else ""


def totals(catalogue: Catalogue, report: Report) -> Totals:
    """What the archive holds now that this run is over."""
    return Totals(stored_before(catalogue, report.run) + report.stored_bytes, catalogue.counts())
