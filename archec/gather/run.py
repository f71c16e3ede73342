"""Run: one gathering run, from its lock to its report."""

from __future__ import annotations

import gc
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from archec.catalogue.codec import compact
from archec.catalogue.interface import Catalogue
from archec.catalogue.open import open_catalogue
from archec.catalogue.records import RunEnd
from archec.config import Config
from archec.errors import ArchecError, Exit, LockHeld, UsageError
from archec.gather.commit import Committer, Item
from archec.gather.dataset import Chosen, choose, printable
from archec.gather.options import Options
from archec.gather.phases import Phases
from archec.gather.recount import recounted
from archec.gather.recover import CATCH_UP, LastRun, catch_up, last_run
from archec.gather.report import Report, Totals
from archec.gather.spool import Spool
from archec.gather.stored import stored_before
from archec.progress import Meter
from archec.redif.problems import Problem
from archec.redif.source import open_source
from archec.store.journal import JournalWriter, tidy
from archec.store.layout import Layout, open_store
from archec.store.lock import RunLock, holder
from archec.store.sweep import sweep_parts, sweep_runs
from archec.store.writer import Outcome, Writer
from archec.tist import stamp
from archec.workers.child import RARE_COLLECTIONS

__all__ = ["Options", "exit_code", "gather"]

Begun = Callable[[Report], None]

_PATIENCE = 60.0
"""Seconds to wait for a reader that is just bringing the catalogue up to date."""


def exit_code(report: Report) -> Exit:
    """The exit code of a run that came to its end."""
    if report.state == "budget":
        return Exit.BUDGET
    return Exit.LOSSES_HELD_BACK if report.held_back else Exit.DONE


def _unheard(report: Report) -> None:
    """Nobody wants to know."""


def gather(config: Config, options: Options, meter: Meter, *, begun: Begun = _unheard) -> Report:
    """One run. Raises an ArchecError where it had to stop; what was committed is kept and the run
    can be resumed. ``begun`` is given the report as soon as there is a run; it is filled as the run goes on."""
    layout = open_store(config)
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
            return _Run(config, layout, catalogue, meter, stack, last, options, begun).resume()
        if last is not None and not last.journal.finished:
            _lay_to_rest(layout, catalogue, last)
        return _Run(config, layout, catalogue, meter, stack, last, options, begun).begin()


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
        if last.start is not None and last.state in ("running", "failed"):
            report = recounted(last, last.start)
            report.state = "interrupted"
            report.message = _message_of(last)
            report.totals = _totals(catalogue, report)
            committer = stack.enter_context(Committer(writer, journal, catalogue, run=run))
            committer.add(Item(RunEnd(run, report.state, compact(report.as_value()))))
            committer.commit()
        journal.finish()


def _message_of(last: LastRun) -> str:
    """Why the run failed, where it could say so."""
    return str(json.loads(last.report).get("message", "")) if last.state == "failed" and last.report else ""


def _totals(catalogue: Catalogue, report: Report) -> Totals:
    """What the archive holds now that this run is over."""
    return Totals(stored_before(catalogue, report.run) + report.stored_bytes, catalogue.counts())


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
        begun: Begun,
    ) -> None:
        self._config, self._layout, self._catalogue, self._begun = config, layout, catalogue, begun
        self._meter, self._stack, self._last, self._options = meter, stack, last, options

    def begin(self) -> Report:
        """A fresh run at a fresh software tist."""
        previous = self._last.journal.tist if self._last is not None else None
        run = stamp(previous)
        chosen = choose(self._config, self._options.file, self._options.as_of, run)
        report = Report(run, chosen.tist, chosen.kind, chosen.source)
        return self._go(chosen, report, merged=False)

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
        self._options = options.carrying_on(start.options)
        report = recounted(last, start)
        report.resumed = True
        chosen = Chosen(Path(start.source), start.kind, start.data_set)
        return self._go(chosen, report, merged=last.merged)

    def _go(self, chosen: Chosen, report: Report, *, merged: bool) -> Report:
        """The run from its report to its end; ``merged``: its data set need not be read any more."""
        config, stack, run = self._config, self._stack, report.run
        source = None if merged else stack.enter_context(open_source(chosen.path, max_file=config.max_template_file))
        self._begun(report)
        journal = stack.enter_context(JournalWriter(self._layout, run))
        writer = stack.enter_context(Writer(self._layout))
        committer = stack.enter_context(
            Committer(writer, journal, self._catalogue, run=run, min_free=config.min_free)
        )
        committer.on_refused = partial(_refused, report)
        spool = stack.enter_context(Spool(config.work_path / str(run)))
        phases = Phases(
            config, self._layout, self._catalogue, committer, spool, report, self._meter,
            self._options, stack,
        )  # fmt: skip
        if not report.resumed:
            phases.announce(chosen)
        try:
            phases.go(chosen, source)
        except BaseException as error:
            for item in committer.unkept:
                report.forget(item.record)
            if isinstance(error, ArchecError):
                _record_failure(committer, report, error)
            raise
        committer.commit()
        report.totals = _totals(self._catalogue, report)
        committer.add(Item(RunEnd(run, report.state, compact(report.as_value()))))
        committer.commit()
        if report.state != "budget":
            journal.finish()
        return report


def _record_failure(committer: Committer, report: Report, error: ArchecError) -> None:
    """Says in the journal why the run stops, if that can be written: the run can be resumed all the same."""
    report.state, report.message = "failed", error.message
    with suppress(ArchecError):  # what made the run fail may be in the way of this, too; it is told by its own error
        committer.note(RunEnd(report.run, report.state, compact(report.as_value())))


def _refused(report: Report, item: Item, outcome: Outcome) -> None:
    """Something could not be kept, because other bytes are held in its place; says so in the report."""
    report.conflicts += 1
    message = "what it would state again is not held" if outcome.kind == "missing" else "other bytes are held there"
    report.problem(Problem(f"{outcome.id} at {outcome.tist}", 0, "occupied", f"was not recorded: {message}"))


@contextmanager
def _rare_collections() -> Iterator[None]:
    """A lot holds many small objects and no cycles; looking for cycles at the usual pace costs a tenth of a run."""
    before = gc.get_threshold()
    gc.set_threshold(*RARE_COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
