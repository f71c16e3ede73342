"""Run: one gathering run, from its lock to its report."""

from __future__ import annotations

import gc
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from archec import __version__
from archec.catalogue.codec import compact
from archec.catalogue.interface import Catalogue
from archec.catalogue.open import open_catalogue
from archec.catalogue.records import RunEnd, RunStart
from archec.config import Config
from archec.errors import Exit, LockHeld, UsageError
from archec.fetch.pool import FetchPool
from archec.gather.commit import Committer, Item
from archec.gather.dataset import Chosen, choose, newest_member, printable
from archec.gather.fobis import Budget, FobiPhase
from archec.gather.lanes import RARELY
from archec.gather.plan import Feeder, make_plan
from archec.gather.progress import Meter
from archec.gather.recover import CATCH_UP, LastRun, catch_up, last_run
from archec.gather.report import Report
from archec.gather.sink import StoreSink
from archec.gather.spool import Spool
from archec.gather.tobis import TobiPhase
from archec.redif.problems import Problem
from archec.redif.source import open_source
from archec.store.journal import JournalWriter, tidy
from archec.store.layout import Layout, open_layout
from archec.store.lock import RunLock, holder
from archec.store.sweep import sweep_parts, sweep_runs
from archec.store.writer import Outcome, Writer
from archec.text.pool import TextPool
from archec.tist import stamp

__all__ = ["Options", "exit_code", "gather"]

_QUEUE = 64
"""Files of one host that are handed to the fetchers ahead of time."""
_PATIENCE = 60.0
"""Seconds to wait for a reader that is just bringing the catalogue up to date."""
_TOBI_LOT = (8000, 10.0)
_FOBI_LOT = (1000, 3.0)


@dataclass(frozen=True, slots=True)
class Options:
    """What a run was asked to do; see ``archec gather --help``."""

    file: Path | None = None
    as_of: int | None = None
    fetch: bool = True
    complete: bool = False
    resume: bool = False
    accept: frozenset[str] = frozenset()
    budget: Budget = Budget()  # noqa: RUF009 - frozen

    def as_text(self) -> str:
        """The part that a resumed run takes over, as JSON text."""
        return compact(
            {"as_of": self.as_of, "fetch": self.fetch, "complete": self.complete, "accept": sorted(self.accept)}
        )


def exit_code(report: Report) -> Exit:
    """The exit code of a run that came to its end."""
    if report.state == "budget":
        return Exit.BUDGET
    return Exit.LOSSES_HELD_BACK if report.held_back else Exit.DONE


def gather(config: Config, options: Options, meter: Meter) -> Report:
    """One run. Raises an ArchecError where it had to stop; what was committed is kept and the run
    can be resumed."""
    layout = open_layout(config.store_path)
    with ExitStack() as stack:
        stack.enter_context(_rare_collections())
        _lock(stack, layout)
        catalogue = open_catalogue(config.database, base=config.base, create=True)
        stack.callback(catalogue.close)
        tidy(layout)
        catch_up(layout, catalogue)
        last = last_run(layout)
        if last is not None:
            _sweep(config, layout, last)
        if options.resume and last is not None and last.resumable:
            return _Run(config, layout, catalogue, meter, stack, last, options).resume()
        if last is not None and not last.journal.finished:
            _lay_to_rest(layout, catalogue, last)
        return _Run(config, layout, catalogue, meter, stack, last, options).begin()


def _lock(stack: ExitStack, layout: Layout) -> None:
    """Takes the run lock; waits only for a reader that catches up, not for another run."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            stack.enter_context(RunLock(layout, "gather"))
            return
        except LockHeld:
            who = holder(layout)
            if time.monotonic() > deadline or (who is not None and who.what != CATCH_UP):
                raise
            time.sleep(0.02)


def _sweep(config: Config, layout: Layout, last: LastRun) -> None:
    """Removes the temporary files and the scratch space that a killed run left."""
    sweep_runs(layout)
    shutil.rmtree(config.work_path / str(last.journal.tist), ignore_errors=True)
    if not last.journal.finished:
        tists = {last.journal.tist}
        if last.start is not None and last.start.data_set:
            tists.add(last.start.data_set)
        sweep_parts(layout, tists)


def _lay_to_rest(layout: Layout, catalogue: Catalogue, last: LastRun) -> None:
    """Closes the journal of a run that nobody resumes."""
    run = last.journal.tist
    with ExitStack() as stack:
        journal = stack.enter_context(JournalWriter(layout, run))
        writer = stack.enter_context(Writer(layout))
        if last.start is not None and last.state == "running":
            committer = stack.enter_context(Committer(writer, journal, catalogue, run=run))
            committer.add(Item(RunEnd(run, "interrupted", last.report or "{}")))
            committer.commit()
        journal.finish()


class _Run:
    """One run under way."""

    def __init__(
        self,
        config: Config,
        layout: Layout,
        catalogue: Catalogue,
        meter: Meter,
        stack: ExitStack,
        last: LastRun | None,
        options: Options,
    ) -> None:
        self._config, self._layout, self._catalogue = config, layout, catalogue
        self._meter, self._stack, self._last, self._options = meter, stack, last, options
        self._workers = config.workers or min(4, os.cpu_count() or 1)

    def begin(self) -> Report:
        """A fresh run at a fresh software tist."""
        previous = self._last.journal.tist if self._last is not None else None
        run = stamp(previous)
        chosen = choose(self._config, self._options.file, self._options.as_of, run)
        report = Report(run, chosen.tist, chosen.kind, chosen.source)
        return self._go(run, chosen, report, resumed=False, merged=False)

    def resume(self) -> Report:
        """The unfinished run goes on."""
        last = self._last
        if last is None or last.start is None:
            raise UsageError("there is no run to resume")
        start, options = last.start, self._options
        if options.file is not None and printable(options.file.absolute()) != start.source:
            raise UsageError(
                f"the run to resume, {start.tist}, reads {start.source}, not {options.file}",
                hint="resume it without -f, or run without --resume",
            )
        kept = json.loads(start.options)
        self._options = replace(
            options,
            as_of=kept.get("as_of"),
            fetch=bool(kept.get("fetch", True)) and options.fetch,
            complete=bool(kept.get("complete")),
            accept=options.accept | frozenset(kept.get("accept", ())),
        )
        report = Report(start.tist, start.data_set, start.kind, start.source)
        if last.merged and last.report:
            report.restore(json.loads(last.report))
        chosen = Chosen(Path(start.source), start.kind, start.data_set)
        return self._go(start.tist, chosen, report, resumed=True, merged=last.merged)

    def _go(self, run: int, chosen: Chosen, report: Report, *, resumed: bool, merged: bool) -> Report:
        config, stack = self._config, self._stack
        source = None if merged else stack.enter_context(open_source(chosen.path, max_file=config.max_template_file))
        journal = stack.enter_context(JournalWriter(self._layout, run))
        writer = stack.enter_context(Writer(self._layout))
        committer = stack.enter_context(
            Committer(writer, journal, self._catalogue, run=run, min_free=config.min_free)
        )
        committer.pace(*_TOBI_LOT)
        committer.on_refused = partial(_refused, report)
        spool = stack.enter_context(Spool(config.work_path / str(run)))
        if not resumed:
            self._announce(committer, run, chosen)
        if source is not None:
            phase = TobiPhase(
                config, self._layout, self._catalogue, committer, spool, report, self._meter,
                run, chosen.tist, self._options.accept, self._options.complete, self._workers,
            )  # fmt: skip
            with _timed(report, "templates"):
                reading = phase.read(source)
                if not chosen.tist:
                    chosen = replace(chosen, tist=newest_member(chosen.path, source.newest))
                    phase = replace(phase, tist=chosen.tist)
                    report.data_set = chosen.tist
                    self._announce(committer, run, chosen)
                phase.merge(reading, printable(Path(chosen.path.name)))
        report.state = "held-back" if report.held_back else "done"
        if self._options.fetch:
            committer.pace(*_FOBI_LOT)
            with _timed(report, "files"):
                if self._fetch(committer, spool, report, run, resumed=resumed):
                    report.state = "budget"
                sweep_parts(self._layout, {run})  # of fetching processes that died
        committer.add(Item(RunEnd(run, report.state, compact(report.as_value()))))
        committer.commit()
        if report.state != "budget":
            journal.finish()
        return report

    def _announce(self, committer: Committer, run: int, chosen: Chosen) -> None:
        start = RunStart(run, chosen.tist, chosen.kind, chosen.source, self._options.as_text(), __version__)
        committer.add(Item(start))
        committer.commit()

    def _fetch(
        self, committer: Committer, spool: Spool, report: Report, run: int, *, resumed: bool
    ) -> bool:
        """The file phase: whether the budget stopped it."""
        config, budget = self._config, self._options.budget
        self._meter.phase("planning visits", None)
        most = budget.files + 1 if budget.files else 0
        if not make_plan(spool, self._catalogue.due(run), most):
            return False
        phase = FobiPhase(
            config, self._layout, self._catalogue, committer, report, self._meter,
            run=run, resumed=resumed, budget=budget,
        )  # fmt: skip
        sink = StoreSink(self._layout, run)
        with TextPool(config.text) as texts:
            for last_pass in (False, True):
                feeder = Feeder(spool, max(_QUEUE, 2 * config.fetch.per_host))
                with FetchPool(config.fetch, config.agent, sink) as pool:
                    try:
                        spent, again = phase.fetch(pool, texts, feeder, last_pass=last_pass)
                    except BaseException:
                        pool.stop()
                        phase.abandon()
                        raise
                if spent:
                    return True
                if not again:
                    return False
                spool.replan(again)
        return False


def _refused(report: Report, item: Item, outcome: Outcome) -> None:
    """Something could not be kept, because other bytes are held in its place; says so in the report."""
    report.conflicts += 1
    message = "what it would state again is not held" if outcome.kind == "missing" else "other bytes are held there"
    report.problem(Problem(f"{outcome.id} at {outcome.tist}", 0, "occupied", f"was not recorded: {message}"))


@contextmanager
def _rare_collections() -> Iterator[None]:
    """A lot holds many small objects and no cycles; looking for cycles at the usual pace costs a tenth of a run."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _timed(report: Report, phase: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        report.seconds[phase] = report.seconds.get(phase, 0.0) + time.monotonic() - began
