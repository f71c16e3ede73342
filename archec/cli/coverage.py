"""``archec coverage``: how many works of each archive and series are held."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click

from archec.archive.opening import Archive
from archec.cli.common import opened, report_options, warn_if_unknown
from archec.export.units import selection
from archec.progress import SILENT
from archec.report.coverage import COLUMNS, CoverageRow, coverage_of_filesets
from archec.report.coverage import coverage as coverage_of
from archec.terminal.output import LineWriter, note, shown, terminal_width
from archec.terminal.progress import meter_for
from archec.tist import iso

_NAME = 24
_DISPENSABLE = ("last_seen", "other", "bad_urls", "forbidden", "gone", "never", "unreachable", "lost", "files", "held")
_COLUMNS = (*COLUMNS, ("last seen ", "last_seen"))


@click.command()
@click.option("--archive", metavar="CODE", help="Only this archive, e.g. aaa.")
@click.option("--series", metavar="S", help="Only this series: aaa:ssssss, or ssssss with --archive.")
@report_options
def coverage(archive: str | None, series: str | None, as_json: bool, config_file: Path | None) -> None:
    """Show how many works of each series have a held file.

    Also why the other files are not held: lost, gone (not there when visited, and never held), unreachable, forbidden,
    never tried, bad URL, or other. Files are those that the newest version of a work mentions, counted once for each
    work. PDFs are recognised by their contents, not by their template or server. An archive was last seen in the
    newest data set that has read its directory. Rows appear as the catalogue is read; the last one is the total. Data
    sets ingested with 'archec fileset ingest' have a separate row before it, which is not part of the total.

    Example: archec coverage --archive smp
    """
    wanted = selection(archive, series)
    with opened(config_file) as opened_archive:
        warn_if_unknown(opened_archive.catalogue, wanted)
        # On a terminal the rows themselves show the progress; without a terminal it is not needed.
        watched = sys.stderr.isatty() and not sys.stdout.isatty()
        with meter_for() if watched else nullcontext(SILENT) as meter:
            meter.phase("works", None)
            catalogue = opened_archive.catalogue
            rows = coverage_of(catalogue, archive=wanted.archive, series=wanted.series, meter=meter)
            _show(rows, None if wanted.archive else opened_archive, as_json=as_json)


def _show(rows: Iterator[CoverageRow], with_filesets: Archive | None, *, as_json: bool) -> None:
    width, lines = terminal_width(), LineWriter()

    def show_row(of: str, name: str, row: CoverageRow) -> None:
        if as_json:
            lines.json({"of": of, **asdict(row)})
        else:
            lines.raw(_line(name, row, width))

    if not as_json:
        left_out = [label for label, field in _COLUMNS if (label, field) not in _columns(width)]
        if left_out:
            note(f"the terminal is too narrow for: {', '.join(map(str.strip, left_out))} (--json has them)")
        lines.raw("".join([f"{'archive, series':<{_NAME}}", *(f"  {label}" for label, _ in _columns(width))]))
    everything = CoverageRow("", "")
    for code, of_archive in groupby(rows, lambda row: row.archive):
        archive, number = CoverageRow(code, ""), 0
        for number, row in enumerate(of_archive, 1):  # noqa: B007
            archive.add(row)
            show_row("series", f"{code}:{row.series}" if row.series else code or "(not a RePEc handle)", row)
        if as_json or number > 1:
            show_row("archive", f"{code} (all)", archive)
        everything.add(archive)
    if with_filesets is not None:
        filesets = coverage_of_filesets(with_filesets.catalogue)
        if filesets.works:
            show_row("filesets", "filesets", filesets)
    show_row("all", "total", everything)


def _line(name: str, row: CoverageRow, width: int | None) -> str:
    name = shown(name)
    if width is not None and len(name) > _NAME:
        name = name[: _NAME - 1] + "…"
    return "".join([f"{name:<{_NAME}}", *(f"  {_cell(row, field):>{len(label)}}" for label, field in _columns(width))])


def _cell(row: CoverageRow, field: str) -> str:
    number: int = getattr(row, field)
    if field == "last_seen":
        return iso(number)[:10] if number else ""
    return f"{number:,}"


def _columns(width: int | None) -> tuple[tuple[str, str], ...]:
    """As many columns as fit the terminal; the least important ones are dropped first."""
    kept = list(_COLUMNS)
    for field in _DISPENSABLE:
        if width is None or _NAME + sum(len(label) + 2 for label, _ in kept) <= width:
            break
        kept = [column for column in kept if column[1] != field]
    return tuple(kept)
