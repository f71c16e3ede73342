"""``archec dump``: the catalogue as canonical JSON lines."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from archec.catalogue.dump import dump as dump_lines
from archec.cli.common import opened, report_options


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Include data that depends on when archec ran: runs, visits ..."
)
@report_options
def dump(everything: bool, as_json: bool, config_file: Path | None) -> None:
    """Print the catalogue as canonical JSON lines.

    One document per obi, sorted. The output is the same for both engines, and for any order in which the data sets were
    replayed. It is JSON lines with or without --json.

    Example: archec dump --all
    """
    with opened(config_file) as archive:
        out = sys.stdout.buffer
        for line in dump_lines(archive.catalogue, everything=everything):
            out.write(line.encode("utf-8", "surrogatepass") + b"\n")
