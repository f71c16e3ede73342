"""``archec runs``: what the runs did."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from archec.cli.common import config_option, echo_json, json_option, opened
from archec.cli.output import shown
from archec.cli.reports import gather_table
from archec.cli.tables import fit, terminal_width
from archec.monitor.runs import RunView, run_named
from archec.monitor.runs import runs as all_runs
from archec.tist import iso
from archec.units import human_duration, human_size

__all__ = ["runs", "told_run"]

_HEAD = ("run", "time", "state", "data set", "templates", "files", "stored", "took")
_WIDTHS = (10, 20, 9, 10, 30, 30, 9, 8)


@click.command()
@click.argument("run", required=False)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The newest N runs only.")
@json_option
@config_option
def runs(run: str | None, limit: int | None, as_json: bool, config_file: Path | None) -> None:
    """List the runs, newest first; or tell all of one RUN, a software tist or 'last'.

    A run is 'running', 'done', 'held back' (done, but losses were held back), 'resumable' (it stopped and --resume
    carries on with it), 'budget' (stopped by its budget; a later run took over) or 'failed' (stopped by
    anything else; a later run took over). With --json one object a line, or one object for one run.
    """
    with opened(config_file) as archive:
        if run is not None:
            view = run_named(archive.layout, archive.catalogue, run)
            if as_json:
                echo_json(view.as_value(whole=True))
            else:
                for line in told_run(view):
                    _echo(line)
            return
        found = islice(all_runs(archive.layout, archive.catalogue), limit)
        if as_json:
            for view in found:
                echo_json(view.as_value())
        else:
            for line in _table(found):
                _echo(line)


def told_run(view: RunView) -> Iterator[str]:
    """Everything of one run, as lines that are safe on a terminal."""
    if "tobis" in view.report:
        value = {**view.report, "state": view.state}
        yield from (shown(line) for line in gather_table(value).split("\n"))
    else:
        yield f"{'run':<11} {view.run}  {iso(view.run)}  {view.state}"
        yield shown(f"{'data set':<11} {view.source}")
    yield shown(f"{'options':<11} {view.options}")
    hosts = view.part("hosts")
    if hosts.get("in_trouble"):
        names = ", ".join(f"{item['host']} ({item['visits']:,} visits)" for item in hosts["trouble"][:5])
        yield shown(f"{'hosts':<11} {hosts['in_trouble']:,} of {hosts['visited']:,} in trouble: {names}")


def _table(found: Iterator[RunView]) -> Iterator[str]:
    yield _line(_HEAD)
    for view in found:
        yield _line(
            (
                str(view.run),
                iso(view.run),
                view.state,
                iso(view.data_set)[:10] if view.data_set else "",
                _counts(view.counts("tobis"), ("new", "changed", "returned", "lost", "held_back")),
                _counts(view.counts("fobis"), ("new", "changed", "returned", "lost")),
                human_size(view.stored_bytes),
                human_duration(view.seconds) if view.seconds is not None else "",
            )
        )
        if view.message:
            yield shown(f"{'':<10}  {view.message}")


def _line(cells: tuple[str, ...]) -> str:
    line = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
    return fit(line, terminal_width())


def _echo(line: str) -> None:
    click.echo(line.encode("utf-8", "backslashreplace"))


def _counts(counts: dict[str, int], kinds: tuple[str, ...]) -> str:
    return ", ".join(f"{counts[kind]:,} {kind.replace('_', ' ')}" for kind in kinds if counts.get(kind)) or "-"
