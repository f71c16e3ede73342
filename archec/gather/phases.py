"""Phases: what a run does between its journal's first line and its report: templates, then files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from archec.archive.commit import Commits
from archec.archive.opening import Archive
from archec.archive.report import Report
from archec.gather.dataset import Chosen, newest_member, printable, refuse_nothing
from archec.gather.files import FilePhase
from archec.gather.options import Options
from archec.gather.plan import Feeder, make_plan
from archec.gather.spool import Spool
from archec.gather.templates import TemplatePhase
from archec.progress import Meter
from archec.redif.items import Source
from archec.store.writer import sweep_parts
from archec.text.pool import TextPool
from archec.web.pool import FetchPool


@dataclass(frozen=True, slots=True)
class Phases:
    """What the phases of a run work with; ``report`` is that of the run, which is filled."""

    archive: Archive
    committer: Commits
    spool: Spool
    report: Report
    meter: Meter
    options: Options

    def read_templates(
        self, chosen: Chosen, source: Source, *, dated: Callable[[Chosen], None], dry: bool = False
    ) -> None:
        """Reads the data set and merges it with the catalogue.

        ``dated`` gets what was chosen with its date where that is known only when the data set has been read. A ``dry``
        run stores nothing. Raises an ArchecError where the run has to stop.
        """
        config, report, options = self.archive.config, self.report, self.options
        phase = TemplatePhase(
            self.archive, self.committer, self.spool, report, self.meter, chosen.tist, options.accept, options.complete,
            1 if dry else config.workers or min(4, os.cpu_count() or 1), dry,
        )  # fmt: skip
        with report.timed("templates"):
            reading = phase.read(source)
            refuse_nothing(chosen, reading.files, self.archive.catalogue)
            if not chosen.tist:
                chosen = replace(chosen, tist=newest_member(chosen.path, source.newest))
                phase = replace(phase, tist=chosen.tist)
                report.data_set = chosen.tist
                dated(chosen)
            phase.merge(reading, printable(Path(chosen.path.name)))
            report.merged = True

    def visit_files(self) -> bool:
        """Visits the files that are due; those of hosts that were given up are tried a second time.

        Whether the budget stopped it. Raises an ArchecError where the run has to stop.
        """
        archive, run, files = self.archive, self.report.run, self.options.budget.files
        self.meter.phase("planning visits", None)
        with self.report.timed("files"):
            if not make_plan(self.spool, archive.catalogue.due(run), files + 1 if files else 0):
                return False
            phase = FilePhase(archive, self.committer, self.report, self.meter, budget=self.options.budget)
            spent, again = False, list[str]()
            with TextPool(archive.config.text) as texts:
                for last_pass in (False, True):
                    spent, again = self._pass(phase, texts, last_pass=last_pass)
                    if spent or not again:
                        break
                    self.spool.replan(again)
            sweep_parts(archive.layout, {run})  # of fetching processes that died
            return spent

    def _pass(self, phase: FilePhase, texts: TextPool, *, last_pass: bool) -> tuple[bool, list[str]]:
        config, sink = self.archive.config, ("archec.gather.sink:store_sink", (self.archive.layout, self.report.run))
        with FetchPool(config.fetch, config.agent, sink) as pool:
            try:
                return phase.fetch(pool, texts, Feeder(self.spool, phase.queue), last_pass=last_pass)
            except BaseException:
                pool.stop()
                phase.abandon()
                raise
