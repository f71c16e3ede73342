"""Dry run: what a run would do, without touching the archive or the network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from archec.archive.commit import DryCommitter
from archec.archive.opening import Archive
from archec.archive.report import Report
from archec.catalogue.open import open_catalogue
from archec.config import Config
from archec.gather.dataset import choose
from archec.gather.options import Options
from archec.gather.phases import Phases
from archec.gather.spool import Spool
from archec.progress import Meter
from archec.redif.source import open_source
from archec.store.journalfile import journals
from archec.store.layout import open_store
from archec.tist import stamp


def dry_run(config: Config, options: Options, meter: Meter) -> Report:
    """Reads and merges the data set and counts what is due; writes to scratch space only.

    Sees what the catalogue holds: what a killed run has left between journal and catalogue is not in it.
    """
    layout = open_store(config)
    known = journals(layout)
    run = stamp(known[-1].tist if known else None)
    chosen = choose(config, options.file, options.as_of, run)
    report = Report(run, chosen.tist, chosen.form, chosen.source, state="dry-run")
    with ExitStack() as stack:
        source = stack.enter_context(open_source(chosen.path, max_file=config.max_template_file))
        spool = stack.enter_context(_scratch(config, run))
        if known:
            catalogue = open_catalogue(config.database, base=config.base, read_only=True)
        else:
            catalogue = open_catalogue("sqlite:///catalogue.sqlite", base=spool.folder, create=True)
        stack.callback(catalogue.close)
        archive = Archive(config, layout, catalogue)
        phases = Phases(archive, DryCommitter(), spool, report, meter, options)
        phases.read_templates(chosen, source, dated=lambda chosen: None, dry=True)
        report.stored_bytes = 0
        if options.fetch:
            report.fobis["due"] = sum(1 for _ in catalogue.due(run))
    return report


@contextmanager
def _scratch(config: Config, run: int) -> Iterator[Spool]:
    """A spool of our own; the work directory goes again if it was not there."""
    missing = not config.work_path.exists()
    try:
        with Spool(config.work_path / f"dry-{run}-{os.getpid()}") as spool:
            yield spool
    finally:
        if missing:
            with suppress(OSError):
                config.work_path.rmdir()
