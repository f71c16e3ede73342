"""``archec rebuild``: rebuilds the catalogue from the archive directory alone."""

from __future__ import annotations

from pathlib import Path

import click

from archec.archive.opening import need_run
from archec.archive.opening import rebuild as rebuild_catalogue
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import redact
from archec.cli.common import report_options, run_of
from archec.config import load
from archec.errors import UsageError
from archec.store.layout import open_store
from archec.store.lock import RunLock
from archec.terminal.output import show
from archec.terminal.progress import meter_for


@click.command()
@click.option("--database", metavar="URL", help="Write to this database instead of the configured one.")
@click.option("--until", "until_run", metavar="RUN", help="Only up to the end of this run.")
@report_options
def rebuild(database: str | None, until_run: str | None, as_json: bool, config_file: Path | None) -> None:
    """Rebuild the catalogue from the archive directory alone.

    It is built from the journals in archive/runs. The database is emptied once all journals have been read and found
    intact; otherwise it is left unchanged. The archive directory is only read. Afterwards 'archec dump --all' prints
    the same bytes as before.

    With --until RUN and --database URL, builds a catalogue with the state of knowledge at the end of this run. Reading
    commands work with it (ARCHEC_DATABASE=URL archec history ...); commands that would write to it are refused.

    Example: archec rebuild
    """
    config = load(config_file)
    until = run_of(until_run, config_file) if until_run is not None else None
    if until is not None and not database:
        raise UsageError("--until needs a separate database", hint="give one with --database URL")
    if until is not None and database == config.database:
        raise UsageError(f"{redact(database)} is the archive's own catalogue", hint="give another with --database URL")
    layout = open_store(config)
    if until is not None:
        need_run(layout, until)
    with RunLock(layout, "rebuild"):
        catalogue = open_catalogue(database or config.database, base=config.base, create=True)
        try:
            with meter_for() as meter:
                batches = rebuild_catalogue(layout, catalogue, until=until or 0, meter=meter)
            counts = catalogue.counts()
            url = catalogue.url
        finally:
            catalogue.close()
    sets = counts.filesets_held, counts.filesets_lost
    show(
        {"database": url, "batches": batches, **counts._asdict()},
        f"Rebuilt {url} from {batches} journal batches:",
        f"  templates: {counts.tobis_held:,} held, {counts.tobis_lost:,} lost",
        f"  files: {counts.fobis_held:,} held, {counts.fobis_lost:,} lost, {counts.fobis_never:,} never held",
        *([f"  filesets: {sets[0]:,} held, {sets[1]:,} lost"] if any(sets) else []),
        as_json=as_json,
    )
