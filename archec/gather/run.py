"""One gathering run, from its lock to its report; or a dry run, which changes nothing and makes no requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from archec import __version__
from archec.archive.commit import CommitItem, Commits, Committer, check_space, committing
from archec.archive.opening import Archive, LastRun, last_run, locked, refuse_past, scratch_folder
from archec.archive.report import Report
from archec.archive.runs import beginning, close_interrupted_run, end_run, read_clock, recounted, stop_run, sweep
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange, RunEnd, RunStart
from archec.config import Config
from archec.errors import ArchecError, DamagedDataSet, DataSetError, Exit, StorageFull, UsageError, gravest
from archec.gather.clock_check import check_clock
from archec.gather.dataset import Chosen, choose, hashed, printable, refuse_retracted
from archec.gather.directory_cache import DirectoryMemory, memory_to_read, open_memory
from archec.gather.due import due_files, refusals
from archec.gather.file_phase import take_up, visit_files
from archec.gather.options import Environment, Options, run_time
from archec.gather.received_bodies import received
from archec.gather.spool import Spool
from archec.gather.template_phase import TemplatePhase
from archec.paging import batched
from archec.progress import SILENT, Meter
from archec.redif.files import DataSetSource
from archec.redif.problems import Problem
from archec.redif.source import open_source
from archec.store.journal import read_batches
from archec.store.layout import journals, open_store
from archec.store.sorting import SortedLines
from archec.store.writer import CommitResult
from archec.tist import stamp
from archec.workers.child import rare_collections

Begun = Callable[[Report], None]

_LOOKED_UP = 1000
_PACE = 8000, 10.0
"""Items and seconds after which templates are committed: they are small."""
_SENTENCES = {
    "network-down": "no host answered: no failure was counted against any; check the network",
    "budget": "the budget is exhausted",
}
"""Why a run stopped before its end."""
_CODES = {"budget": Exit.BUDGET, "damaged": Exit.DAMAGED, "network-down": Exit.NETWORK_DOWN}


def exit_code(report: Report) -> Exit:
    held_back = {Exit.LOSSES_HELD_BACK} if report.held_back else set()
    return gravest(held_back | {_CODES.get(report.state, Exit.DONE)})


def gather(config: Config, options: Options, meter: Meter, *, begun: Begun = lambda report: None) -> Report:
    """Performs one run. Raises an ArchecError if it must stop; what was committed is kept and the run can be resumed.
    ``begun`` receives the report as soon as the run has begun; the report is filled as the run proceeds. A run that
    fails before that is recorded for :func:`archec.archive.runs.unbegun`."""
    with beginning(config) as begins:

        def with_report(report: Report) -> None:
            begins()
            begun(report)

        return _gather(config, options, meter, with_report)


def _gather(config: Config, options: Options, meter: Meter, begun: Begun) -> Report:
    options = replace(options, template_files=config.template_files, refusals=refusals(config.fetch))
    with rare_collections(), locked(config, "gather", meter, wait=options.wait) as archive:
        layout = archive.layout
        last = _taken_up(archive, options, last_run(layout))
        if last is not None:
            sweep(archive, last)
        if options.resume:
            return _resume(archive, options, meter, begun, last)
        if last is not None and not options.trust_clock:
            check_clock(archive, last.journal, ask=options.fetch)
        run = stamp(last.journal.tist if last is not None else None)
        chosen = hashed(choose(config, options.file, options.as_of, run), meter)
        refuse_retracted(chosen, archive.catalogue)
        if last is not None and not last.journal.finished:
            close_interrupted_run(archive, last)
        report = Report(run, chosen.tist, chosen.form, chosen.source)
        return _run(archive, options, meter, begun, chosen, report)


def _resume(archive: Archive, options: Options, meter: Meter, begun: Begun, last: LastRun | None) -> Report:
    """Resumes the unfinished run. Raises UsageError if there is none that can be resumed, DataSetError if the tarball
    has changed."""
    start = last.start if last is not None else None
    if last is None or start is None or not last.resumable:
        raise UsageError(_not_resumable(last), hint="'archec gather' starts a new one")
    if options.file is not None and printable(options.file.absolute()) != start.source:
        raise UsageError(
            f"the run to resume, {start.tist}, reads {start.source}, not {options.file}",
            hint="resume it without -f, or run without --resume",
        )
    report = recounted(last, start)
    report.resumed = True
    chosen = Chosen(Path(start.source), start.form, start.data_set)
    if not last.merged:
        chosen = hashed(chosen, meter)
        if start.sha256 and chosen.sha256 != start.sha256:
            raise DataSetError(
                f"{start.source}: has the sha256 {chosen.sha256}, but run {start.tist} began to read {start.sha256}",
                hint="restore that file, or start a new run without --resume",
            )
    return _run(archive, options.carrying_on(start.options), meter, begun, chosen, report, merged=last.merged)


def _not_resumable(last: LastRun | None) -> str:
    """Why there is no run to resume."""
    if last is None:
        return "there is no run to resume: this archive has none yet"
    if last.journal.finished or last.start is None or last.start.kind != "gather" or last.start.form == "tarball":
        return "there is no gathering to resume: the last run is finished, or is not a gathering"
    return f"run {last.start.tist} cannot be resumed: it was reading {last.start.source}, which may have changed since"


def _run(
    archive: Archive,
    options: Options,
    meter: Meter,
    begun: Begun,
    chosen: Chosen,
    report: Report,
    *,
    merged: bool = False,
) -> Report:
    """Performs a run from its report to its end. ``merged``: its data set has already been read."""
    config, catalogue = archive.config, archive.catalogue
    check_space(archive.layout, config.min_free)
    with ExitStack() as stack:
        source = memory = None
        if not merged:
            if chosen.form == "directory" and options.file is None:
                memory = open_memory(config, options, catalogue, report)
                if memory is not None:
                    stack.enter_context(memory)
            source = stack.enter_context(_source(config, chosen, options, memory))
        of, committer = stack.enter_context(_environment(archive, report, meter, options))
        if not report.resumed:
            _announce(committer, report, options, chosen)
        else:  # the time and the requests of a resumed run are counted from zero again
            committer.add(CommitItem(RunEnd(report.run, "running", report.as_value())))
            committer.commit()
        begun(report)
        try:
            if source is not None:
                committer.pace(*_PACE)
                TemplatePhase(of, memory, chosen).run(source, dated=partial(_announce, committer, report, options))
            report.state = "held-back" if report.held_back else "done"
            if options.fetch:
                report.state = visit_files(of) or ("held-back" if report.held_back else "done")
            report.message = _SENTENCES.get(report.state, "")
        except DamagedDataSet as error:
            report.state, report.message = "damaged", str(error)
        except BaseException as error:
            for item in committer.uncommitted:
                report.forget(item.record)
            if isinstance(error, StorageFull):
                of.spool.close()  # the journal may need its space
            if isinstance(error, (ArchecError, KeyboardInterrupt)):
                stop_run(committer, report, error)
            raise
        end_run(catalogue, committer, report)
    return report


@contextmanager
def _environment(
    archive: Archive, report: Report, meter: Meter, options: Options
) -> Iterator[tuple[Environment, Committer]]:
    """What the phases of a run work with, and its committer."""
    with committing(archive, report.run) as committer, Spool(archive.work / str(report.run)) as spool:
        committer.on_refused = partial(_refused, report)
        at = run_time(report.run, time.time())
        yield Environment(archive, committer, spool, report, meter, options, at), committer


def _source(config: Config, chosen: Chosen, options: Options, memory: DirectoryMemory | None = None) -> DataSetSource:
    return open_source(
        chosen.path,
        max_file=config.max_template_file,
        patterns=options.template_files,
        unchanged=memory.unchanged if memory is not None else None,
    )


def _taken_up(archive: Archive, options: Options, last: LastRun | None) -> LastRun | None:
    """The newest run. Visits whose answers it had received but not journalled are completed in its journal first."""
    if last is None or last.start is None or last.journal.finished:
        return last
    run, config = last.journal.tist, archive.config
    hops = received(config.work_path, run)
    if not hops:
        return last
    report = recounted(last, last.start)
    report.resumed = True
    with _environment(archive, report, SILENT, options) as (of, committer):
        take_up(of, hops)
        if last.state != "running":
            report.state, report.message = last.state, str(last.report.get("message", ""))
            committer.note(RunEnd(run, report.state, report.as_value()))
    return last_run(archive.layout)


def _announce(committer: Committer, report: Report, options: Options, chosen: Chosen) -> None:
    """Journals the start of the run, and its data set."""
    start = RunStart(
        report.run,
        data_set=chosen.tist,
        form=chosen.form,
        source=chosen.source,
        sha256=chosen.sha256,
        options=options.as_value(),
        software=__version__,
        clock=read_clock(),
    )
    committer.add(CommitItem(start))
    committer.commit()


def _refused(report: Report, item: CommitItem, outcome: CommitResult) -> None:
    """Reports a record that could not be stored because other bytes are held in its place, or because the bytes that it
    restates are missing."""
    report.conflicts += 1
    report.forget(item.record)
    message = "the bytes to state again are not held" if outcome.kind == "missing" else "other bytes are held there"
    report.problem(Problem(f"{outcome.id} at {outcome.tist}", 0, "occupied", f"was not recorded: {message}"))


def dry_run(config: Config, options: Options, meter: Meter) -> Report:
    """Reads and merges the data set and counts what would be due; writes to scratch space only.

    It uses the catalogue as it is: batches of a killed run that are only in the journal are missing.
    """
    layout = open_store(config)
    options = replace(options, template_files=config.template_files, refusals=refusals(config.fetch))
    known = journals(layout)
    run = stamp(known[-1].tist if known else None)
    chosen = hashed(choose(config, options.file, options.as_of, run), meter)
    report = Report(run, chosen.tist, chosen.form, chosen.source, state="dry-run")
    with ExitStack() as stack:
        if not config.work_path.exists():
            stack.callback(_remove_empty, config.work_path)
        spool = stack.enter_context(Spool(stack.enter_context(scratch_folder(config)) / "spool"))
        if known:
            next(read_batches(known[-1].path), None)  # refuses journals of another version, which no run would follow
            catalogue = open_catalogue(config.database, base=config.base, read_only=True)
        else:
            catalogue = open_catalogue("sqlite:///catalogue.sqlite", base=spool.folder, create=True)
        stack.callback(catalogue.close)
        refuse_past(catalogue)
        refuse_retracted(chosen, catalogue)
        is_current = chosen.form == "directory" and options.file is None
        memory = memory_to_read(config, options, catalogue) if is_current else None
        if memory is not None:
            stack.callback(memory.close)
        source = stack.enter_context(_source(config, chosen, options, memory))
        archive = Archive(config, layout, catalogue)
        at = run_time(run, time.time())
        named = stack.enter_context(SortedLines(spool.folder))
        of = Environment(archive, _Named(named), spool, report, meter, options, at)
        try:
            TemplatePhase(of, memory, chosen, dry=True).run(source, dated=lambda chosen: None)
        except DamagedDataSet as error:
            report.state, report.message = "damaged", str(error)
        report.stored_bytes = 0
        if options.fetch and report.state != "damaged":
            due = sum(1 for _ in due_files(catalogue, config.fetch, at.when, run))
            report.fobis["due"] = due + _unknown(catalogue, named)
    return report


class _Named(Commits):
    """Collects the URLs in new and changed templates and stores nothing, for a dry run."""

    def __init__(self, to: SortedLines) -> None:
        self._to = to

    def add(self, item: CommitItem) -> None:
        record = item.record
        if isinstance(record, ObiChange) and record.version is not None:
            for ref in record.version.refs:
                self._to.add(ref.url.encode("utf-8", "surrogatepass"))


def _unknown(catalogue: Catalogue, urls: SortedLines) -> int:
    """The number of URLs that the catalogue does not know."""
    chunks = batched((url.decode("utf-8", "surrogatepass") for url in urls), _LOOKED_UP)
    return sum(len(chunk) - len(catalogue.obis("fobi", chunk)) for chunk in chunks)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


