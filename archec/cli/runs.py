"""``archec runs``: lists the runs, or shows one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from archec.archive.runs import unbegun
from archec.cli.common import opened, report_options
from archec.cli.runreport import INDENT, gather_table, host_outcomes, other_table
from archec.errors import UsageError
from archec.monitor.runs import RunView, runs_listed, view_of
from archec.terminal.output import echo, echo_json, note, show, terminal_width
from archec.tist import iso
from archec.units import human_duration, human_size, listed

_HEAD = ("run", "time", "state", "kind", "data set", "templates", "files", "stored", "took")
_WIDTHS = (10, 20, 12, 8, 10, 30, 30, 9, 8)
_TEMPLATES = ("new", "changed", "cosmetic", "file-url", "returned", "lost", "held_back")
_FILES = ("new", "changed", "cosmetic", "returned", "lost")
_FIRST = 4
"""Columns of the first line on a terminal that is too narrow for all of them."""
_BELOW = 4


@click.command()
@click.argument("run", required=False)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the newest N runs.")
@report_options
def runs(run: str | None, limit: int | None, as_json: bool, config_file: Path | None) -> None:
    """List the runs, or show one of them.

    Newest first; RUN is a software tist, or 'last' for the newest gathering, whatever ran since. A run is 'running',
    'done', 'held-back' (done, but some losses await a decision), 'budget' (its budget was exhausted), 'network-down'
    (none of three or more hosts answered), 'damaged' (its data set is), 'interrupted' (by a signal or a kill) or
    'failed' (stopped by an error); a stopped run can be resumed until the next one begins. Its kind is 'gather',
    'fileset' (an ingest), 'losses' (some were accepted), 'retract' or 'fork'.
    With --json, prints one object per line, or one object for a single run.

    Example: archec runs last
    """
    if run is not None and limit is not None:
        raise UsageError("--limit is for the list of runs", hint="omit RUN or --limit")
    with opened(config_file) as archive:
        if run is not None:
            view = view_of(archive, run)
            show(view.as_value(whole=True), *_details(view), as_json=as_json, indent=INDENT)
            return
        found = islice(runs_listed(archive), limit)
        failed = unbegun(archive.config)
        if as_json:
            if failed is not None:
                echo_json({"run": None, "run_time": iso(failed.time), "state": "failed", "message": failed.message})
            for view in found:
                echo_json(view.as_value())
        else:
            for line in _table(found):
                echo(line, _BELOW)
            if failed is not None:
                note(f"the newest run failed before it began, at {iso(failed.time)}: {failed.message}")


def _details(view: RunView) -> Iterator[str]:
    if view.report is not None:
        report = replace(view.report, state=view.state)
        yield from gather_table(report) if view.kind == "gather" else other_table(view.kind, report)
    else:
        yield f"{'run':<11} {view.run}  {iso(view.run)}  {view.state}"
        yield f"{'kind':<11} {view.kind}"
        if view.source:
            yield f"{'data set':<11} {view.source}"
    if view.resumable:
        yield f"{'resumable':<11} archec gather --resume continues it"
    for why in _retracted(view):
        yield f"{'retracted':<11} {why}"
    if options := "; ".join(_options(view.options)):
        yield f"{'options':<11} {options}"
    hosts = view.figures.hosts
    if hosts.in_trouble:
        names = "; ".join(f"{host.host}: {host_outcomes(host)}" for host in hosts.trouble[:5])
        yield f"{'hosts':<11} {hosts.in_trouble:,} in trouble, {hosts.visited:,} visited; {names}"


def _retracted(view: RunView) -> Iterator[str]:
    """What of a run does not count, and why."""
    for what, why in (("visits do", view.retracted), ("data set does", view.data_set_retracted)):
        if why:
            yield f"its {what} not count: {why}"


def _options(options: dict[str, Any]) -> Iterator[str]:
    """The options of a run that differ from the defaults."""
    for name, value in options.items():
        words = name.replace("_", " ")
        if name == "refusals":  # a checksum
            continue
        if name == "fetch":
            yield from () if value else ("no fetch",)
        elif name == "as_of" and value:
            yield f"{words} {iso(value)}"
        elif value is True:
            yield words
        elif value:
            yield f"{words} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def _table(found: Iterator[RunView]) -> Iterator[str]:
    width = terminal_width()
    yield from _lines(_HEAD, width)
    for view in found:
        yield from _lines(
            (
                str(view.run),
                iso(view.run),
                view.state,
                view.kind,
                iso(view.data_set)[:10] if view.data_set else "",
                listed({kind: view.figures.tobis.get(kind, 0) for kind in _TEMPLATES}, "-"),
                listed({kind: view.figures.fobis.get(kind, 0) for kind in _FILES}, "-"),
                human_size(view.figures.stored_bytes),
                human_duration(view.seconds) if view.seconds is not None else "",
            ),
            width,
        )
        for more in ("resumable: archec gather --resume" if view.resumable else "", view.message, *_retracted(view)):
            if more:
                yield f"{'':<{_BELOW}}{more}"


def _lines(cells: tuple[str, ...], width: int | None) -> Iterator[str]:
    """A row on one line; if that is too long, the later columns with their names on a second line."""
    if width is None or sum(_WIDTHS) + 2 * len(_WIDTHS) <= width:
        yield _joined(cells)
        return
    yield _joined(cells[:_FIRST])
    if cells is not _HEAD:
        named = zip(_HEAD[_FIRST:], cells[_FIRST:], strict=True)
        rest = "; ".join(f"{name}: {cell}" for name, cell in named if cell not in ("", "-"))
        yield f"{'':<{_BELOW}}{rest}"


def _joined(cells: tuple[str, ...]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=False)).rstrip()
