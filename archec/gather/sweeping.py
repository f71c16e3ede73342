"""Sweeping: what a run that was killed has left on the disk goes before the next one begins."""

from __future__ import annotations

import shutil
from contextlib import suppress

from archec.archive.follow import LastRun
from archec.config import Config
from archec.gather.received import received_path
from archec.store.layout import Layout
from archec.store.writer import sweep_parts, sweep_runs


def sweep(config: Config, layout: Layout, last: LastRun) -> None:
    """Removes the temporary files and the scratch space that a killed run left."""
    sweep_runs(layout)
    shutil.rmtree(config.work_path / str(last.journal.tist), ignore_errors=True)
    with suppress(OSError):
        received_path(config.work_path, last.journal.tist).unlink()
    if not last.journal.finished:
        tists = {last.journal.tist}
        if last.start is not None and last.start.data_set:
            tists.add(last.start.data_set)
        sweep_parts(layout, tists)
