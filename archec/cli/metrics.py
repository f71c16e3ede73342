"""``archec metrics``: figures for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from archec.cli.archive import opened
from archec.cli.common import config_option, echo_json, json_option, note
from archec.cli.output import write_whole
from archec.monitor.metrics import figures, text
from archec.monitor.status import status

__all__ = ["metrics"]


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write them into this file, whole or not at all; its name should end in .prom.",
)
@json_option
@config_option
def metrics(output: Path | None, as_json: bool, config_file: Path | None) -> None:
    """Print the archive's figures in Prometheus' text format, for node_exporter's textfile collector.

    With --json one object a line.
    """
    with opened(config_file) as archive:
        found = status(archive.config, archive.layout, archive.catalogue)
    if as_json:
        for figure in figures(found):
            echo_json({"name": figure.name, "labels": dict(figure.labels), "value": float(figure.value)})
    if output is not None:
        if output.suffix != ".prom":
            note(f"{output}: node_exporter's textfile collector reads files *.prom only")
        write_whole(output, text(found).encode("utf-8", "backslashreplace"))
    elif not as_json:
        click.echo(text(found).encode("utf-8", "backslashreplace"), nl=False)
