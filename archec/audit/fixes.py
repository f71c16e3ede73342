"""Fixes: what ``archec check --fix`` mends. Only what is provably safe; nothing that has a final name goes."""

from __future__ import annotations

import os
from pathlib import Path

from archec.audit.findings import Finding
from archec.errors import CorruptJournal
from archec.store.durable import failure, is_temp
from archec.store.journal import tidy
from archec.store.layout import RUNS, Layout
from archec.store.temp import sweep_parts, sweep_runs

__all__ = ["Fixes", "temporary_in"]


def temporary_in(directory: Path) -> int:
    """How many temporary files lie in a directory; 0 where there is none."""
    try:
        return sum(map(is_temp, os.listdir(directory)))
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise failure(error, directory) from error


class Fixes:
    """Mends one archive. Only for who holds the run lock. The catalogue catches up in opening the archive."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._swept: set[int] = set()

    def tidy(self) -> list[Finding]:
        """Settles what a kill left beside the journals: temporary files, and two forms of one journal."""
        twice = sorted(
            plain.name
            for packed in self._layout.runs.glob("*.jsonl.gz")
            if (plain := packed.with_suffix("")).exists()
        )
        left = temporary_in(self._layout.runs) + temporary_in(self._layout.root)
        try:
            tidy(self._layout)
        except CorruptJournal:
            twice = []  # they are not the same: the check tells of it
        mended = "the form that is not compressed was removed, after both were compared"
        done = [Finding("journal-twice", f"{RUNS}/{name}", "was there twice", mended=mended) for name in twice]
        if left:
            done.append(Finding("leftover", RUNS, f"temporary files: {left}", mended="removed"))
        return done

    def sweep(self, tist: int) -> str:
        """Removes the temporary files of a tist (-1: those beside the journals); what was done."""
        if tist not in self._swept:
            self._swept.add(tist)
            if tist < 0:
                sweep_runs(self._layout)
            else:
                sweep_parts(self._layout, {tist})
        return "removed"
