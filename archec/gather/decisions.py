"""Decisions of the operator: runs that read no data set and visit no file, but change what the archive concludes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from archec import __version__
from archec.archive.commit import CommitItem, Committer
from archec.archive.follow import catch_up, last_run
from archec.archive.opening import Archive
from archec.archive.report import Report
from archec.archive.runs import close_interrupted_run, totals
from archec.catalogue.open import open_catalogue
from archec.catalogue.records import Record, RunEnd, RunStart
from archec.config import Config
from archec.gather.received import sweep
from archec.store.journal_writer import JournalWriter, tidy
from archec.store.layout import open_store
from archec.store.lock import RunLock
from archec.store.writer import Writer
from archec.tist import stamp


class Decision(NamedTuple):
    """A decision on its way: the run's report, and what is committed to."""

    report: Report
    committer: Committer

    def journal(self, *records: Record) -> None:
        """Journals what is decided, as one batch that comes before all that follows from it: where the run is cut off
        after it, the next one finishes what follows."""
        for record in records:
            self.committer.add(CommitItem(record))
        self.committer.commit()


@contextmanager
def locked(config: Config, what: str) -> Iterator[Archive]:
    """The archive, open for writing, with the run lock. Raises :class:`LockHeld` where another run is at work."""
    layout = open_store(config)
    with ExitStack() as stack:
        stack.enter_context(RunLock(layout, what))
        catalogue = open_catalogue(config.database, base=config.base, create=True)
        stack.callback(catalogue.close)
        tidy(layout)
        catch_up(layout, catalogue)
        yield Archive(config, layout, catalogue)


@contextmanager
def deciding(archive: Archive, kind: str, options: Mapping[str, Any]) -> Iterator[Decision]:
    """A run of this kind over a locked archive, from its journal's first line, which has ``options``, to its last."""
    layout, catalogue = archive.layout, archive.catalogue
    with ExitStack() as stack:
        last = last_run(layout)
        if last is not None:
            sweep(archive.config, layout, last)
        if last is not None and not last.journal.finished:
            close_interrupted_run(archive, last)
        run = stamp(last.journal.tist if last is not None else None)
        report = Report(run, 0, "tarball", "")
        journal = stack.enter_context(JournalWriter(layout, run, head=catalogue.position().head))
        writer = stack.enter_context(Writer(layout))
        committer = Committer(writer, journal, catalogue, run=run, min_free=archive.config.min_free)
        committer.add(CommitItem(RunStart(run, kind=kind, options=dict(options), software=__version__)))
        yield Decision(report, committer)
        report.state = "done"
        report.totals = totals(catalogue, report)
        committer.add(CommitItem(RunEnd(run, report.state, report.as_value())))
        committer.commit()
        journal.finish()
