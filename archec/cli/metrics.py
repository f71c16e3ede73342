"""``archec metrics``: figures for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click
from prometheus_client import generate_latest

from archec.cli.archive import opened
from archec.cli.common import config_option, echo_json, json_option, note
from archec.cli.output import write_whole
from archec.monitor.metrics import metrics_of
from archec.monitor.status import status


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
        found = metrics_of(status(archive.config, archive.layout, archive.catalogue))
    if as_json:
        for metric in found.collect():
            for sample in metric.samples:
                echo_json({"name": sample.name, "labels": sample.labels, "value": sample.value})
    if output is not None:
        if output.suffix != ".prom":
            note(f"{output}: node_exporter's textfile collector reads files *.prom only")
        write_whole(output, generate_latest(found))
    elif not as_json:
        click.echo(generate_latest(found), nl=False)
