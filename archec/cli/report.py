"""``archec report``: a page about a run and the archive, or the same as JSON."""

from __future__ import annotations

import time
from pathlib import Path

import click

from archec.cli.archive import opened
from archec.cli.common import config_option, echo_json, json_option
from archec.cli.output import write_whole
from archec.errors import UsageError
from archec.gather.progress import Meter, meter_for
from archec.monitor.page import Account, page
from archec.monitor.plots import coverage_by_archive, need_matplotlib, series_of
from archec.monitor.runs import run_named, runs

__all__ = ["report"]


@click.command()
@click.argument("run", default="last")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The page to write, whole or not at all, e.g. report.html.",
)
@json_option
@config_option
def report(run: str, output: Path | None, as_json: bool, config_file: Path | None) -> None:
    """Write a page about RUN (a software tist, or 'last', which is the default) and the archive up to it.

    Incidences over time, growth, hosts by outcome and coverage by archive, as plots and as tables, in one HTML
    file that needs no network and no scripts. With --json the same figures on stdout. Coverage is that of now.
    """
    if output is None and not as_json:
        raise UsageError("where should the page go?", hint="-o report.html, or --json")
    meter = meter_for()
    try:
        with opened(config_file) as archive:
            if output is not None:
                need_matplotlib()
            view = run_named(archive.layout, archive.catalogue, run)
            series = series_of(runs(archive.layout, archive.catalogue, before=view.run + 1))
            tell = _Tell(meter, archive.catalogue.counts().tobis_held)
            rows = coverage_by_archive(archive.catalogue, tell)
            account = Account(archive.config.name, int(time.time()), view, series, tuple(rows))
    finally:
        meter.close()
    if as_json:
        echo_json(account.as_value())
    if output is not None:
        write_whole(output, page(account).encode("utf-8", "replace"))


class _Tell:
    """Adds up works and tells a meter."""

    def __init__(self, meter: Meter, most: int) -> None:
        self._meter, self._done = meter, 0
        meter.phase("works and their files", most or None)

    def __call__(self, works: int) -> None:
        self._done += works
        self._meter.at(self._done)
