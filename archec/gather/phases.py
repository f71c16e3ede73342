"""Phases: what a run does between its journal's first line and its report: templates, then files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from archec import __version__
from archec.catalogue.interface import Catalogue
from archec.catalogue.records import RunStart
from archec.config import Config
from archec.gather.commit import Committer, Item
from archec.gather.dataset import Chosen, newest_member, printable, refuse_nothing
from archec.gather.fobis import FobiPhase
from archec.gather.options import Options
from archec.gather.plan import Feeder, make_plan
from archec.gather.report import Report
from archec.gather.sink import StoreSink
from archec.gather.spool import Spool
from archec.gather.tobis import TobiPhase
from archec.progress import Meter
from archec.redif.items import Source
from archec.store.layout import Layout
from archec.store.sweep import sweep_parts
from archec.text.pool import TextPool
from archec.web.pool import FetchPool

__all__ = ["Phases"]

_TOBI_LOT = (8000, 10.0)


@dataclass(frozen=True, slots=True)
class Phases:
    """What the phases work with. ``report`` is that of the run, which is filled; processes for fetching end
    with ``stack``."""

    config: Config
    layout: Layout
    catalogue: Catalogue
    committer: Committer
    spool: Spool
    report: Report
    meter: Meter
    options: Options
    stack: ExitStack

    def announce(self, chosen: Chosen) -> None:
        """Journals that the run begins, and what it reads."""
        report = self.report
        start = RunStart(report.run, chosen.tist, chosen.kind, chosen.source, self.options.as_text(), __version__)
        self.committer.add(Item(start))
        self.committer.commit()

    def go(self, chosen: Chosen, source: Source | None) -> None:
        """Templates from ``source`` (None: they have been merged already); then files, if they are wanted.

        The report's state says how that ended. Raises an ArchecError where the run has to stop.
        """
        report = self.report
        # The fetching processes get ready, and fetch what they may, while templates are read.
        pool = self.stack.enter_context(self._fetchers()) if self.options.fetch else None
        fobis = FobiPhase(
            self.config, self.layout, self.catalogue, self.committer, report, self.meter,
            run=report.run, resumed=report.resumed, budget=self.options.budget,
        )  # fmt: skip
        if source is not None:
            if pool is not None and not self.options.budget:
                fobis.begin(pool)
            self.committer.pace(*_TOBI_LOT)
            with _timed(report, "templates"):
                self._templates(chosen, source)
        report.state = "held-back" if report.held_back else "done"
        if pool is not None:
            with _timed(report, "files"):
                if self._files(fobis, pool):
                    report.state = "budget"
                sweep_parts(self.layout, {report.run})  # of fetching processes that died

    def _templates(self, chosen: Chosen, source: Source) -> None:
        """Reads the data set and merges it; its date is known at the latest when it has been read."""
        config, report, options = self.config, self.report, self.options
        phase = TobiPhase(
            config, self.layout, self.catalogue, self.committer, self.spool, report, self.meter,
            report.run, chosen.tist, options.accept, options.complete, config.workers or min(4, os.cpu_count() or 1),
        )  # fmt: skip
        reading = phase.read(source)
        refuse_nothing(chosen, reading.files, self.catalogue)
        if not chosen.tist:
            chosen = replace(chosen, tist=newest_member(chosen.path, source.newest))
            phase = replace(phase, tist=chosen.tist)
            report.data_set = chosen.tist
            self.announce(chosen)
        phase.merge(reading, printable(Path(chosen.path.name)))

    def _fetchers(self) -> FetchPool:
        sink = StoreSink(self.layout, self.report.run)
        return FetchPool(self.config.fetch, self.config.agent, sink)

    def _files(self, phase: FobiPhase, pool: FetchPool) -> bool:
        """Visits the files that are due: whether the budget stopped it."""
        self.meter.phase("planning visits", None)
        files = self.options.budget.files
        if not make_plan(self.spool, self.catalogue.due(self.report.run), files + 1 if files else 0):
            return False
        with TextPool(self.config.text) as texts:
            for last_pass in (False, True):
                feeder = Feeder(self.spool, phase.queue)
                if last_pass:
                    pool = self.stack.enter_context(self._fetchers())
                try:
                    spent, again = phase.fetch(pool, texts, feeder, last_pass=last_pass)
                except BaseException:
                    pool.stop()
                    phase.abandon()
                    raise
                pool.stop()
                if spent:
                    return True
                if not again:
                    return False
                self.spool.replan(again)
        return False


@contextmanager
def _timed(report: Report, phase: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        report.seconds[phase] = report.seconds.get(phase, 0.0) + time.monotonic() - began
