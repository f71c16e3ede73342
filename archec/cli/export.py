"""``archec export``: what the archive holds, in the forms of other programs."""

from __future__ import annotations

from pathlib import Path

import click

from archec.cli.archive import opened, tell_unknown
from archec.cli.common import config_option, echo_json, json_option
from archec.errors import Exit
from archec.export.bodies import Problem
from archec.export.units import selection
from archec.export.warc import Request, Summary, Tell, export_warc
from archec.gather.progress import meter_for
from archec.tist import parse_when
from archec.units import human_duration, human_size

__all__ = ["export"]


@click.group()
def export() -> None:
    """Write what the archive holds in the forms of other programs.

    'archec export warc' makes a vault of WARC files with a CDXJ index for each series.
    """


@export.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--archive", metavar="CODE", help="Only this archive, e.g. aaa.")
@click.option("--series", metavar="S", help="Only this series: aaa:ssssss, or ssssss with --archive.")
@click.option("--since", metavar="DATE", help="Only what was seen at this time or later.")
@click.option("--no-revisits", is_flag=True, help="Without the visits that found a file unchanged.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what there is to be written.")
@json_option
@config_option
@click.pass_context
def warc(
    context: click.Context,
    folder: Path,
    archive: str | None,
    series: str | None,
    since: str | None,
    no_revisits: bool,
    dry_run: bool,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Bring a vault of WARC 1.1 files and CDXJ indexes up to date, by archive and series.

    What the vault's indexes name already is not written again. What is missing from the obi store or has the wrong
    bytes is named and left out; the command then exits with 6.
    """
    wanted = selection(archive, series)
    first = parse_when(since) if since is not None else 0
    request = Request(folder, wanted, first, dry_run, not no_revisits)
    with opened(config_file) as opened_archive:
        tell_unknown(opened_archive.catalogue, wanted)
        meter = meter_for()
        try:
            summary = export_warc(
                opened_archive.config, opened_archive.layout, opened_archive.catalogue, request, meter, _teller(as_json)
            )
        finally:
            meter.close()
    if as_json:
        echo_json(summary.as_value())
    else:
        for line in _lines(summary):
            click.echo(line.encode("utf-8", "backslashreplace"))
    if summary.spoilt:
        context.exit(Exit.CORRUPT)


def _teller(as_json: bool) -> Tell:
    def tell(problem: Problem) -> None:
        if as_json:
            echo_json(problem.as_value())
        else:
            click.echo(ascii(f"{problem.code}: {problem.path}: {problem.message}")[1:-1])

    return tell


def _lines(summary: Summary) -> list[str]:
    done = "To be exported" if summary.dry else "Exported"
    total = sum(summary.records.values())
    head = (
        f"{done} to {ascii(summary.vault)[1:-1]}: {total:,} records of {summary.changed:,} series, "
        f"{human_size(summary.payload)}; {summary.there:,} records were there; {human_duration(summary.seconds)}."
    )
    lines = [head, *(f"  {kind}: {count:,}" for kind, count in sorted(summary.records.items()))]
    if summary.files:
        lines.append(f"  WARC files: {summary.files:,} new, {human_size(summary.written)}")
    if summary.spoilt:
        codes = ", ".join(f"{count:,} {code}" for code, count in sorted(summary.problems.items()))
        more = f", {summary.untold:,} more not named" if summary.untold else ""
        lines.append(f"  NOT exported: {codes}{more}: archec verify says more")
    return lines
