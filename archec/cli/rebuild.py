"""``archec rebuild``: a fresh catalogue from the archive folder alone."""

from __future__ import annotations

from pathlib import Path

import click

from archec.catalogue.open import open_catalogue
from archec.cli.common import config_option, echo_json, json_option
from archec.config import load
from archec.gather.progress import Meter, meter_for
from archec.gather.recover import rebuild as rebuild_catalogue
from archec.store.layout import open_store
from archec.store.lock import RunLock

__all__ = ["rebuild"]


@click.command()
@click.option("--database", metavar="URL", help="Write to this database instead of the configured one.")
@json_option
@config_option
def rebuild(database: str | None, as_json: bool, config_file: Path | None) -> None:
    """Make a fresh catalogue from the archive folder alone (the journals in archive/runs).

    The database is emptied first, when all journals have been read and found good; else it stays as it is. The
    archive folder is only read. Afterwards 'archec dump --all' gives the same bytes as before.
    """
    config = load(config_file)
    layout = open_store(config)
    meter = meter_for()
    with RunLock(layout, "rebuild"):
        catalogue = open_catalogue(database or config.database, base=config.base, create=True)
        try:
            phases = _Phases(meter)
            batches = rebuild_catalogue(layout, catalogue, told=phases.written, checked=phases.checked)
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


class _Phases:
    """Tells a meter of the journals that are read, twice: to be sure of them, and to fill the catalogue."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._lines, self._writing = meter, 0, False
        meter.phase("checking journals", None)

    def checked(self, lines: int, run: int) -> None:
        self._lines = lines
        self._meter.at(lines, f"run {run}")

    def written(self, lines: int, run: int) -> None:
        if not self._writing:
            self._writing = True
            self._meter.phase("filling the catalogue", self._lines)
        self._meter.at(lines, f"run {run}")
