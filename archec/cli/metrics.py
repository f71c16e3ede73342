"""``archec metrics``: metrics for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click
from prometheus_client import generate_latest

from archec.cli.common import opened, output_option, report_options
from archec.monitor.metrics import metrics_of
from archec.monitor.status import status
from archec.store.durable import open_whole
from archec.terminal.output import echo_json, note


@click.command()
@output_option("Write them to this file, atomically; its name should end in .prom.")
@report_options
def metrics(output: Path | None, as_json: bool, config_file: Path | None) -> None:
    """Print metrics of the archive for Prometheus.

    The output is in its text format, for node_exporter's textfile collector. With --json, prints one object per line.

    Example: archec metrics -o archec.prom
    """
    with opened(config_file) as archive:
        found = metrics_of(status(archive))
    if as_json:
        for metric in found.collect():
            for sample in metric.samples:
                echo_json({"name": sample.name, "labels": sample.labels, "value": sample.value})
    if output is not None:
        if output.suffix != ".prom":
            note(f"{output}: node_exporter's textfile collector only reads *.prom files")
        with open_whole(output) as file:
            file.write(generate_latest(found))
    elif not as_json:
        click.echo(generate_latest(found), nl=False)
