"""``archec rebuild``: a fresh catalogue from the archive folder alone."""

from __future__ import annotations

from pathlib import Path

import click

from archec.catalogue.open import open_catalogue
from archec.cli.common import config_option, echo_json, json_option
from archec.config import load
from archec.gather.progress import meter_for
from archec.gather.recover import rebuild as rebuild_catalogue
from archec.store.layout import open_layout
from archec.store.lock import RunLock

__all__ = ["rebuild"]


@click.command()
@click.option("--database", metavar="URL", help="Write to this database instead of the configured one.")
@json_option
@config_option
def rebuild(database: str | None, as_json: bool, config_file: Path | None) -> None:
    """Make a fresh catalogue from the archive folder alone (the journals in archive/runs).

    The database is emptied first; the archive folder is only read. Afterwards 'archec dump --all'
    gives the same bytes as before.
    """
    config = load(config_file)
    layout = open_layout(config.store_path)
    meter = meter_for()
    with RunLock(layout, "rebuild"):
        catalogue = open_catalogue(database or config.database, base=config.base, create=True)
        try:
            meter.phase("reading journals", None)
            batches = rebuild_catalogue(layout, catalogue, told=lambda lines, run: meter.at(lines, f"run {run}"))
            counts = catalogue.counts()
            url = catalogue.url
        finally:
            meter.close()
            catalogue.close()
    if as_json:
        echo_json({"database": url, "batches": batches, **counts._asdict()})
        return
    click.echo(f"Rebuilt {url} from {batches} journal batches:")
    click.echo(f"  tobis: {counts.tobis_held:,} held, {counts.tobis_lost:,} lost")
    click.echo(
        f"  fobis: {counts.fobis_held:,} held, {counts.fobis_lost:,} lost, {counts.fobis_never:,} never held"
    )
