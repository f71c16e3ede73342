"""Dry run: what a run would do, without touching the archive or the network."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from archec.catalogue.interface import Catalogue
from archec.catalogue.open import open_catalogue
from archec.config import Config
from archec.gather.dataset import choose, newest_member, refuse_nothing
from archec.gather.merging import Merged, Present, merge
from archec.gather.observations import Observations, covers
from archec.gather.options import Options
from archec.gather.reading import read_data_set
from archec.gather.report import Report
from archec.gather.spool import Spool
from archec.gather.tobis import is_held_back
from archec.ids import archive_of
from archec.progress import Meter
from archec.redif.source import open_source
from archec.store.journal import journals
from archec.store.layout import Layout, open_store
from archec.tist import stamp

__all__ = ["dry_run"]


def dry_run(config: Config, options: Options, meter: Meter) -> Report:
    """Reads and merges the data set and counts what is due; writes to scratch space only.

    Sees what the catalogue holds: what a killed run has left between journal and catalogue is not in it.
    """
    layout = open_store(config)
    known = journals(layout)
    run = stamp(known[-1].tist if known else None)
    chosen = choose(config, options.file, options.as_of, run)
    report = Report(run, chosen.tist, chosen.kind, chosen.source, state="dry-run")
    with (
        open_source(chosen.path, max_file=config.max_template_file) as source,
        _scratch(config, run) as spool,
        _catalogue(config, layout, spool) as catalogue,
    ):
        meter.phase("reading templates", source.size or None)
        reading = read_data_set(
            source,
            spool,
            workers=1,
            on_problem=report.problem,
            on_more=report.more_problems,
            on_progress=lambda r: meter.at(source.position, f"{r.templates:,} templates"),
        )
        refuse_nothing(chosen, reading.files, catalogue)
        if not chosen.tist:
            chosen = replace(chosen, tist=newest_member(chosen.path, source.newest))
            report.data_set = chosen.tist
        reading.tell(report)
        draft = reading.coverage(chosen.tist, complete=options.complete)
        report.complete = draft.complete
        observations = Observations(catalogue.data_sets(), catalogue.seen)
        merged = Merged()
        held: Counter[str] = Counter()
        losses: Counter[str] = Counter()
        for item in merge(
            spool.found(reading.superseded),
            catalogue.scan_tobis(),
            chosen.tist,
            merged,
            on_seen=lambda obi: None,
            on_held=lambda obi: held.update((archive_of(obi),)),
        ):
            if isinstance(item, Present):
                entry = item.history.entry_at(chosen.tist)
                kind = "new" if entry is None else "returned" if entry[1] is None else "changed"
                report.tobis[kind] += 1
            elif covers(draft, item.id) and not observations.observes(item.id, chosen.tist):
                losses[item.archive] += 1
        report.duplicates = merged.duplicates
        report.tobis["same"] = merged.same
        for code, count in losses.items():
            accepted = "all" in options.accept or code in options.accept
            if not accepted and is_held_back(config, count, held[code]):
                report.held_back[code] = count
            else:
                report.tobis["lost"] += count
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


@contextmanager
def _catalogue(config: Config, layout: Layout, spool: Spool) -> Iterator[Catalogue]:
    """The catalogue, which cannot be written to; an empty one in scratch space for an archive without runs."""
    if journals(layout):
        catalogue = open_catalogue(config.database, base=config.base, read_only=True)
    else:
        catalogue = open_catalogue("sqlite:///catalogue.sqlite", base=spool.folder, create=True)
    try:
        yield catalogue
    finally:
        catalogue.close()
