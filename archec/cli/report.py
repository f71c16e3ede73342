"""``archec report``: a page about a run and the archive, or the same as JSON."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path

import click

from archec.audit.last_checked import fixity
from archec.cli.common import opened, output_option, report_options
from archec.errors import UsageError
from archec.monitor.page import Account, page
from archec.monitor.plots import coverage_by_archive, need_matplotlib, series_of
from archec.monitor.runs import runs, view_of
from archec.monitor.status import held_back
from archec.report.changes import ChangesQuery, changes_of_runs
from archec.report.coverage import coverage_of_filesets
from archec.store.durable import open_whole
from archec.terminal.output import echo_json, note
from archec.terminal.progress import meter_for

_MOST_LOST = 100
_LOOK_AT = 1_000_000
"""Maximum number of incidences searched for the losses of the run."""


@click.command()
@click.argument("run", default="last")
@output_option("Write the page to this file, e.g. report.html.")
@report_options
def report(run: str, output: Path | None, as_json: bool, config_file: Path | None) -> None:
    """Write a page about a run and the archive up to it.

    RUN is a software tist, or 'last' (the default). The page shows incidences over time, growth, what was lost, hosts
    by outcome and coverage by archive, as plots and as tables, in one HTML file without scripts or external resources.
    With --json, prints the same data on stdout. Coverage is always the current one.

    Example: archec report -o report.html
    """
    with meter_for() as meter, opened(config_file) as archive:
        view = view_of(archive, run)
        if output is None and not as_json:
            raise UsageError("no output given", hint="use -o report.html, or --json")
        if output is not None:
            need_matplotlib()
        series = series_of(runs(archive, before=view.run + 1))
        meter.phase("works and their files", archive.catalogue.counts().tobis_held or None)
        rows = coverage_by_archive(archive.catalogue, meter)
        waiting = tuple(held_back(archive.catalogue))
        noted = changes_of_runs(archive.catalogue, view.run, ChangesQuery(until_run=view.run + 1))
        lost = tuple(islice((one for one in islice(noted, _LOOK_AT) if one.what == "lost"), _MOST_LOST))
        filesets = coverage_of_filesets(archive.catalogue)
        now, checks = int(time.time()), fixity(archive.config)
        account = Account(archive.config.name, now, view, series, tuple(rows), waiting, lost, checks, filesets)
    if as_json:
        echo_json(account.as_value())
    if output is not None:
        with open_whole(output) as file:
            file.write(page(account).encode("utf-8", "replace"))
        note(f"{output}: written")
