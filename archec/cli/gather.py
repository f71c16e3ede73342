"""``archec gather``: performs one run, or one per data set."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from archec.archive.budget import Budget
from archec.archive.opening import last_run
from archec.archive.report import Report
from archec.archive.runs import beginning
from archec.cli.common import DATE, DURATION, FILE, PATH, SIZE, opened, report_options, warn_if_root, warn_if_unknown
from archec.cli.runreport import INDENT, RUN_LINE, RunLine, gather_table, other_table
from archec.config import Config, load
from archec.errors import DataSetError, Exit, UsageError, gravest, gravest_of_items
from archec.export.units import UnitSelection
from archec.gather.dataset import Chosen, OverallMeter, in_order, still_to_read
from archec.gather.options import Options
from archec.gather.run import dry_run as run_dry
from archec.gather.run import exit_code
from archec.gather.run import gather as gather_run
from archec.progress import Meter
from archec.store.layout import journals, open_store
from archec.terminal.output import note, show
from archec.terminal.progress import meter_for
from archec.tist import iso
from archec.units import counted
from archec.web.outcome import Outcome

_Limit = TypeVar("_Limit", int, float)
_MOST_NAMED = 20


@click.command()
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=PATH,
    metavar="FILE|DIRECTORY",
    help="Replay this data set instead of the current one; may be repeated, and more may follow.",
)
@click.argument("more", nargs=-1, type=PATH, metavar="[FILE|DIRECTORY]...")
@click.option("--as-of", type=DATE, help="The data set's date.")
@click.option("--no-fetch", is_flag=True, help="Read templates only; fetch no files.")
@click.option("--reread", is_flag=True, help="Read all files of the data set, not only those that changed.")
@click.option("--complete", is_flag=True, help="The data set is all of RePEc: archives missing from it count as lost.")
@click.option(
    "--salvage", is_flag=True, help="Take what can be read of a damaged tarball; an intact one supersedes it."
)
@click.option("--wait", is_flag=True, help="Wait for another run to end instead of exiting with 4.")
@click.option("--resume", is_flag=True, help="Continue the run that was stopped; refused if there is none.")
@click.option("--trust-clock", is_flag=True, help="Continue although the clock of this machine seems wrong.")
@click.option(
    "--accept-losses",
    multiple=True,
    metavar="CODE|HOST|all",
    help="Accept held-back losses of this archive, or of files of this host; may be repeated.",
)
@click.option("--filesets", is_flag=True, help="Also ingest data sets that are due (like fileset.gather).")
@click.option(
    "--repeated",
    type=FILE,
    help="Write to FILE which handles occur more than once in the data set, how often, and where: first the template "
    "that counts (of those in one file, the last).",
)
@click.option("--dry-run", is_flag=True, help="Report what would be done; change nothing, fetch nothing.")
@click.option("--max-files", type=click.IntRange(1), metavar="N", help="Fetch at most this many files.")
@click.option("--max-bytes", type=SIZE, help="Receive at most this much, e.g. 20GB.")
@click.option("--max-time", type=DURATION, help="Stop fetching after this time, e.g. 6h.")
@report_options
@click.pass_context
def gather(
    context: click.Context,
    files: tuple[Path, ...],
    more: tuple[Path, ...],
    as_of: int | None,
    no_fetch: bool,
    reread: bool,
    complete: bool,
    salvage: bool,
    wait: bool,
    trust_clock: bool,
    resume: bool,
    accept_losses: tuple[str, ...],
    filesets: bool,
    repeated: Path | None,
    dry_run: bool,
    max_files: int | None,
    max_bytes: int | None,
    max_time: float | None,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Gather once: read the data set and fetch files.

    Keeps the templates that are new or changed, and fetches the files that they point to and that are due. Meant
    for cron. Only one run works on an archive at a time. What a run has committed is kept whatever happens to it;
    the next run, or --resume, continues. Within a budget (--max-files, --max-bytes, --max-time) files that were
    never tried come first, then the longest overdue.

    Several data sets (-f A -f B, or -f A B ...) are replayed oldest first, each
    in its own run; a directory stands for the tarballs in it. Files are fetched
    once, in the last run. A data set that is damaged, retracted or not a tarball
    does not stop the others; if it is the last one, the data set before it is
    replayed again to fetch files. --resume continues such a command.

    Without --as-of, a data set has the date in its name; without one, a tarball
    has the date of its newest member, and a directory the present time.

    Example: archec gather --max-time 6h
    """
    if filesets and no_fetch:
        raise UsageError("--no-fetch ingests no data sets", hint="omit --filesets")
    started = time.monotonic()
    line = context.meta[RUN_LINE] = RunLine()
    config = load(config_file)
    if salvage and not (files or more) and (resume or config.data_path.is_dir()):
        raise UsageError("--salvage is for a damaged tarball", hint="give the tarball with -f")
    if repeated is not None and not os.access(repeated.parent, os.W_OK):
        raise UsageError(f"--repeated: {repeated.parent} is not a writable directory")
    budget = Budget(
        config.max_files if max_files is None else max_files,
        config.max_bytes if max_bytes is None else _positive("--max-bytes", max_bytes),
        config.max_time if max_time is None else _positive("--max-time", max_time),
    )
    options = Options(
        as_of=as_of,
        fetch=not no_fetch,
        complete=complete,
        salvage=salvage,
        resume=resume,
        reread=reread,
        wait=wait,
        trust_clock=trust_clock,
        accept=frozenset(_code(code) for code in accept_losses),
        budget=budget,
        repeated=repeated,
    )
    with nullcontext() if dry_run else beginning(config):
        chosen = in_order(config, [*files, *more], options.as_of) if files or more else []
    if dry_run and resume and len(chosen) < 2:
        raise UsageError("--dry-run does not resume a run", hint="omit --resume")
    if not dry_run:
        warn_if_root(config)
    run = _Run(config, line, dry_run, as_json)
    if repeated is not None and len(chosen) > 1:
        raise UsageError("--repeated lists the handles of a single data set", hint="give only one")
    with meter_for() as meter:
        if len(chosen) > 1:
            code = _each(run, chosen, options, meter)
        else:
            code = run(replace(options, file=chosen[0].path if chosen else None), meter)
        ingests = (filesets or config.fileset.gather) and not no_fetch
        if ingests and dry_run:
            _tell_due(config)
        elif ingests and code is not Exit.BUDGET:
            code = gravest([code, _ingest_due(run, code, meter, wait, _left(budget, line.report, started))])
    if codes := sorted(code for code in options.accept - {"all"} if code.isalnum()):
        with opened(config_file) as archive:
            for archive_code in codes:
                warn_if_unknown(archive.catalogue, UnitSelection(archive_code))
    context.exit(int(code))


def _left(budget: Budget, report: Report | None, started: float) -> Budget:
    files = sum(report.fobis.get(outcome.value, 0) for outcome in Outcome) if report is not None else 0
    received = report.fetched_bytes if report is not None else 0
    left = Budget(budget.files - files, budget.bytes - received, budget.seconds - (time.monotonic() - started))
    pairs = zip((budget.files, budget.bytes, budget.seconds), (left.files, left.bytes, left.seconds), strict=True)
    if any(most and rest <= 0 for most, rest in pairs):
        return Budget(spent=True)
    return Budget(max(left.files, 0), max(left.bytes, 0), max(left.seconds, 0.0))


def _tell_due(config: Config) -> None:
    from archec.fileset.run import due_requests  # as below

    has_runs = bool(journals(open_store(config)))  # else there may be no catalogue
    due = [url for url, _ in due_requests(config, int(time.time()))] if has_runs else []
    named = f": {', '.join(due[:_MOST_NAMED])}{' ...' if len(due) > _MOST_NAMED else ''}" if due else ""
    note(f"{counted(len(due), 'data set')} due{named}")


def _ingest_due(run: _Run, before: Exit, meter: Meter, wait: bool, budget: Budget) -> Exit:
    """Ingests the data sets that are due, in a separate run with the remaining ``budget``. ``before`` is the exit code
    of the run before it."""
    # Imported here: loading all platforms takes as long as loading the rest of this command.
    from archec.fileset.context import IngestOptions
    from archec.fileset.run import KIND, due_requests, run_ingest
    from archec.fileset.status import Status

    lines = due_requests(run.config, int(time.time()))
    if not lines:
        return Exit.DONE
    run.line.write(int(before), "")
    counter = run_ingest(run.config, lines, IngestOptions(), meter, lambda result, file: None, wait=wait, budget=budget)
    if counter.report is not None:
        run.line.take(counter.report)
        report = run.line.finished()
        with suppress(BrokenPipeError):  # as above
            show(report.as_value(), *other_table(KIND, report.figures()), as_json=run.as_json, indent=INDENT)
    return Exit.BUDGET if Status.BUDGET.value in counter.statuses else Exit.DONE


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the command, and its output."""

    config: Config
    line: RunLine
    dry: bool
    as_json: bool

    def __call__(self, options: Options, meter: Meter) -> Exit:
        if self.dry:
            self.line.take(run_dry(self.config, options, meter))
        else:
            gather_run(self.config, options, meter, begun=partial(_begun, self.line))
        report = self.line.finished()
        _warn(report)
        with suppress(BrokenPipeError):  # the run is done, whether or not anyone reads its report
            table = gather_table(report.figures(), message_printed=report.state == "damaged")
            show(report.as_value(), *table, as_json=self.as_json, indent=INDENT)
        return exit_code(report)


def _each(run: _Run, chosen: Sequence[Chosen], options: Options, meter: Meter) -> Exit:
    """One run per data set. A data set that cannot be read does not stop the others; any other error does."""
    if options.as_of is not None:
        raise UsageError("--as-of is the date of a single data set", hint="give only one")
    to_read = [(one, False) for one in chosen]
    if options.resume:
        with opened(run.config) as archive:
            to_read = list(still_to_read(chosen, last_run(archive.layout), archive.catalogue.data_sets(), meter))
        note(f"{len(chosen) - len(to_read):,} of {len(chosen):,} data sets were read before")
    sizes = [_size(one) for one, _ in to_read]
    overall = OverallMeter(meter, sizes)
    whole = [one for one in chosen if one not in (unread for unread, _ in to_read)]
    codes, left, why = {Exit.DONE}, deque(to_read), ""
    while left:
        one, resume = left.popleft()
        overall.next()
        fetch = options.fetch and (resume or not left)
        message = ""
        try:
            code = run(replace(options, file=one.path, resume=resume, fetch=fetch), overall)
        except DataSetError as error:
            note(error)
            code, message = error.exit_code, str(error)
        codes.add(code)
        if not message and code is not Exit.DAMAGED:
            whole.append(one)
        elif fetch and whole:  # files are fetched all the same, with the last data set that could be read
            newest = max(whole, key=chosen.index)
            whole.remove(newest)
            left.append((newest, False))
            sizes.append(_size(left[0][0]))
        if left:
            run.line.write(int(code), message)
        why = message or why
    run.line.message = why
    return gravest_of_items(codes)  # usage: a retracted one


def _size(data_set: Chosen) -> int:
    return data_set.path.stat().st_size if data_set.form == "tarball" else 0


def _begun(line: RunLine, report: Report) -> None:
    """Called when the run has begun; if it was resumed, prints which run it is."""
    line.take(report)
    if report.resumed:
        note(f"continuing run {report.run} of {iso(report.run)}, of {report.source}")


def _warn(report: Report) -> None:
    """Warns about a data set that was empty or incomplete."""
    if report.state == "damaged":
        note(report.message)
    elif not report.files:
        note(f"warning: {report.source}: contains no template files")
    elif not report.whole:
        note(
            f"warning: {report.source}: is damaged: what could be read was kept, and nothing counts as lost; "
            "no checksum verifies what was read before the damage was noticed ('archec history --why': not whole)"
        )


def _positive(option: str, limit: _Limit) -> _Limit:
    if not limit:
        raise UsageError(f"{option} must be more than 0", hint="omit it for a run without this limit")
    return limit


def _code(code: str) -> str:
    bare = code.strip().lower().removeprefix("repec:")
    if not re.fullmatch(r"[a-z0-9]+|[a-z0-9_.-]+(:[0-9]+)?|\[[0-9a-f:]+\](:[0-9]+)?", bare):
        raise UsageError(
            f"{code!r} is neither an archive code nor a host",
            hint="give an archive code such as aaa, a host as written in URLs, or all",
        )
    return bare
