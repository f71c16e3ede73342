"""``archec coverage``: how much of the works of each archive and series is held."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from archec.cli.archive import Archive, opened, tell_unknown
from archec.cli.common import config_option, json_option, note
from archec.cli.tables import Lines, fit, terminal_width
from archec.export.units import Selection, selection
from archec.report.coverage import Coverage, Tell, coverage_of_all
from archec.report.coverage import coverage as coverage_of

if TYPE_CHECKING:
    from archec.gather.progress import Meter

__all__ = ["coverage"]

_NAME = 24
_LEAST_SAID = ("other", "files", "lost", "held", "never", "forbidden", "unreachable")
_COLUMNS = (
    ("works", "works"), ("w. a file", "with_file"), ("files", "files"), ("held", "held"), ("PDFs", "pdfs"),
    ("lost", "lost"), ("unreach.", "unreachable"), ("forbidden", "forbidden"), ("untried", "never"),
    ("other", "other"),
)  # fmt: skip


@click.command()
@click.option("--archive", metavar="CODE", help="Only this archive, e.g. aaa.")
@click.option("--series", metavar="S", help="Only this series: aaa:ssssss, or ssssss with --archive.")
@json_option
@config_option
def coverage(archive: str | None, series: str | None, as_json: bool, config_file: Path | None) -> None:
    """Show for each archive and series how many works have a file that is held, and what became of the rest.

    Files are those that the newest version of a work names, counted for each work that names them. PDFs are counted
    by their bytes, not by what their template or server says. Rows come as the catalogue is read; the last one is
    the total.
    """
    wanted = selection(archive, series)
    with opened(config_file) as opened_archive:
        tell_unknown(opened_archive.catalogue, wanted)
        meter = _meter()
        looked = 0

        def tell(templates: int) -> None:
            nonlocal looked
            looked += templates
            if meter is not None:
                meter.at(looked)

        try:
            if meter is not None:
                meter.phase("templates", None)
            _show(_rows(opened_archive, wanted, tell), as_json=as_json)
        finally:
            if meter is not None:
                meter.close()


def _meter() -> Meter | None:
    """On a terminal the rows themselves say how far it is; without one nobody looks."""
    if sys.stdout.isatty() or not sys.stderr.isatty():
        return None
    from archec.gather.progress import meter_for  # takes longer to import than all else

    return meter_for()


def _rows(archive: Archive, wanted: Selection, tell: Tell) -> Iterator[Coverage]:
    if wanted.archive:
        return coverage_of(archive.catalogue, archive=wanted.archive, series=wanted.series, tell=tell)
    config = archive.config
    return coverage_of_all(archive.catalogue, config.database, config.base, tell=tell)


def _show(rows: Iterator[Coverage], *, as_json: bool) -> None:
    width, lines = terminal_width(), Lines()

    def tell(of: str, name: str, row: Coverage) -> None:
        if as_json:
            lines.json({"of": of, **asdict(row)})
        else:
            lines.text(_line(name, row, width))

    if not as_json:
        left_out = [label for label, field in _COLUMNS if (label, field) not in _columns(width)]
        if left_out:
            note(f"the terminal is too narrow for: {', '.join(left_out)} (--json has them)")
        lines.text("".join([f"{'archive, series':<{_NAME}}", *(f"  {label}" for label, _ in _columns(width))]))
    everything = Coverage("", "")
    archive = Coverage("", "")
    here = 0
    for row in rows:
        if here and archive.archive != row.archive:
            if as_json or here > 1:
                tell("archive", f"{archive.archive} (all)", archive)
            here = 0
        if not here:
            archive = Coverage(row.archive, "")
        here += 1
        archive.add(row)
        everything.add(row)
        tell("series", f"{row.archive}:{row.series}" if row.series else row.archive or "(no handle of RePEc)", row)
    if here and (as_json or here > 1):
        tell("archive", f"{archive.archive} (all)", archive)
    tell("all", "total", everything)


def _line(name: str, row: Coverage, width: int | None) -> str:
    head = f"{fit(name, None if width is None else _NAME):<{_NAME}}"
    return "".join([head, *(f"  {getattr(row, field):>{len(label)},}" for label, field in _columns(width))])


def _columns(width: int | None) -> tuple[tuple[str, str], ...]:
    """As many columns as the terminal takes; those that say least go first."""
    kept = list(_COLUMNS)
    for field in _LEAST_SAID:
        if width is None or _NAME + sum(len(label) + 2 for label, _ in kept) <= width:
            break
        kept = [column for column in kept if column[1] != field]
    return tuple(kept)
