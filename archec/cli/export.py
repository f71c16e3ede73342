"""``archec export``: writes the contents of the archive in the formats of other programs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from archec.cli.common import DATE, DIRECTORY, leave, opened, report_options, warn_if_unknown
from archec.errors import Exit, UsageError
from archec.export.checking import VaultFault
from archec.export.run import ExportSummary, VaultCheck, export_warc, verify_vault
from archec.export.units import selection
from archec.export.writing import ExportRequest, NotExported
from archec.terminal.output import show
from archec.terminal.progress import meter_for
from archec.units import counted, human_duration, human_size, listed


@click.group()
def export() -> None:
    """Export the contents of the archive in other formats.

    'archec export warc' writes a vault of WARC files with a CDXJ index for each series.

    Example: archec export warc vault
    """


@export.command()
@click.argument("folder", metavar="DIR", type=DIRECTORY)
@click.option("--archive", metavar="CODE", help="Only this archive, e.g. aaa.")
@click.option("--series", metavar="S", help="Only this series: aaa:ssssss, or ssssss with --archive.")
@click.option("--since", type=DATE, help="Only states seen at this time or later.")
@click.option("--no-revisits", is_flag=True, help="Skip visits that found a file unchanged.")
@click.option("--dry-run", is_flag=True, help="Write nothing; report what would be written.")
@click.option("--verify", is_flag=True, help="Write nothing; verify every record in the indexes.")
@report_options
def warc(
    folder: Path,
    archive: str | None,
    series: str | None,
    since: int | None,
    no_revisits: bool,
    dry_run: bool,
    verify: bool,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Update a vault of WARC files and CDXJ indexes.

    Each series has its own files. Records that are in the indexes of the vault are not written again; that their WARC
    files exist with the right sizes is checked every time, and --verify reads all of them. Records that are missing
    from the obi store or from the vault, or have wrong bytes, are reported; the exit code is then 6.

    Example: archec export warc vault --archive smp
    """
    wanted = selection(archive, series)
    request = ExportRequest(folder, wanted, since or 0, dry_run, not no_revisits)
    if verify and (since is not None or no_revisits or dry_run):
        raise UsageError("--verify writes nothing: it can only be combined with --archive and --series")
    with opened(config_file) as it:
        warn_if_unknown(it.catalogue, wanted)
        report = partial(_report, as_json=as_json)
        if verify:
            with meter_for() as meter:
                read = verify_vault(it, folder, wanted, meter, report)
            show(read.as_value(), _check_line(read), as_json=as_json)
            leave(Exit.CORRUPT if read.faults else Exit.DONE)
        with meter_for() as meter:
            summary = export_warc(it, request, meter, report)
    show(summary.as_value(), *_lines(summary), as_json=as_json)
    if summary.failed or summary.faults:
        leave(Exit.CORRUPT)


def _check_line(read: VaultCheck) -> str:
    return (
        f"Read {counted(read.records, 'record')} of {read.series:,} series, {human_size(read.bytes)}, in "
        f"{human_duration(read.seconds)}: {read.faults:,} wrong."
    )


def _report(failed: NotExported | VaultFault, *, as_json: bool) -> None:
    show(failed._asdict(), f"{failed.code}: {failed.path}: {failed.message}", as_json=as_json)


def _lines(summary: ExportSummary) -> list[str]:
    done = "To be exported" if summary.dry_run else "Exported"
    total = sum(summary.records.values())
    head = (
        f"{done} to {summary.vault}: {counted(total, 'record')} of {summary.changed:,} series, "
        f"{human_size(summary.payload_bytes)}; {counted(summary.existing, 'existing record')}; "
        f"{human_duration(summary.seconds)}."
    )
    lines = [head, *(f"  {kind}: {count:,}" for kind, count in sorted(summary.records.items()))]
    if summary.files:
        lines.append(f"  WARC files: {summary.files:,} new, {human_size(summary.warc_bytes)}")
    if summary.faults:
        lines.append(f"  WRONG in the vault: {counted(summary.faults, 'file')}")
    if summary.failed:
        codes = listed(dict(sorted(summary.by_code.items())))
        unnamed = summary.failed - summary.by_code.total()
        more = f", {unnamed:,} more not named" if unnamed else ""
        lines.append(f"  NOT exported: {codes}{more}: run archec verify")
    return lines
