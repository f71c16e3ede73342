"""Series: how incidences and sizes went over time, and coverage by archive; what the page's plots are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from archec.catalogue.interface import Catalogue
from archec.monitor.runs import RunView
from archec.report.coverage import Coverage, Tell, coverage, total
from archec.tist import MAX_TIST

__all__ = ["KINDS", "Bin", "Growth", "Series", "coverage_by_archive", "series_of"]

KINDS = ("new", "changed", "returned", "lost")
_CHANGED = ("changed", "cosmetic", "file-url")
_BINS = 60
_POINTS = 1500


@dataclass(slots=True)
class Bin:
    """A stretch of time [``start``, ``end``): incidences by kind; tobis by the date of their data set, fobis by that of
    their run."""

    start: int
    end: int
    tobis: Counter[str] = field(default_factory=Counter)
    fobis: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Growth:
    """What all runs up to ``run`` wrote into the obi store, and what was held then; None: it was not recorded."""

    run: int
    stored_bytes: int
    tobis_held: int | None
    fobis_held: int | None


@dataclass(frozen=True, slots=True)
class Series:
    """Both over time, oldest first."""

    incidences: tuple[Bin, ...]
    growth: tuple[Growth, ...]

    def as_value(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "incidences": [
                {"start": item.start, "end": item.end, "tobis": dict(item.tobis), "fobis": dict(item.fobis)}
                for item in self.incidences
            ],
            "growth": [asdict(item) for item in self.growth],
        }


@dataclass(frozen=True, slots=True)
class _Run:
    run: int
    data_set: int
    tobis: dict[str, int]
    fobis: dict[str, int]
    stored: int
    totals: dict[str, int]


def series_of(views: Iterable[RunView]) -> Series:
    """The series of runs, given newest first. Only figures of a run are kept: some hundred bytes each."""
    runs = [
        _Run(
            view.run,
            view.data_set,
            _incidences(view.counts("tobis")),
            _incidences(view.counts("fobis")),
            view.stored_bytes,
            view.counts("totals"),
        )
        for view in views
    ]
    runs.reverse()
    return Series(_bins(runs), _growth(runs))


def coverage_by_archive(catalogue: Catalogue, tell: Tell = lambda works: None) -> list[Coverage]:
    """The coverage of each archive, those with the most works first."""
    archives: dict[str, list[Coverage]] = {}
    for row in coverage(catalogue, tell=tell):
        known = archives.get(row.archive)
        archives[row.archive] = [total([*known, row]) if known else row]
    found = []
    for code, (row,) in archives.items():
        row.archive, row.series = code, ""
        found.append(row)
    return sorted(found, key=lambda row: (-row.works, row.archive))


def _incidences(counts: dict[str, int]) -> dict[str, int]:
    found = {kind: counts.get(kind, 0) for kind in KINDS}
    found["changed"] = sum(counts.get(kind, 0) for kind in _CHANGED)
    return found


def _bins(runs: list[_Run]) -> tuple[Bin, ...]:
    times = [tist for run in runs for tist in (run.run, run.data_set) if 0 < tist <= MAX_TIST]
    if not times:
        return ()
    first, last = min(times), max(times)
    width = max((last - first) // _BINS + 1, 3600)
    bins = [Bin(first + i * width, first + (i + 1) * width) for i in range((last - first) // width + 1)]
    for run in runs:
        for tist, counts, which in ((run.data_set or run.run, run.tobis, "tobis"), (run.run, run.fobis, "fobis")):
            if 0 < tist <= MAX_TIST:
                getattr(bins[(tist - first) // width], which).update(counts)
    return tuple(bins)


def _growth(runs: list[_Run]) -> tuple[Growth, ...]:
    found: list[Growth] = []
    stored = 0
    for run in runs:
        stored = run.totals["stored_bytes"] if "stored_bytes" in run.totals else stored + run.stored
        found.append(Growth(run.run, stored, run.totals.get("tobis_held"), run.totals.get("fobis_held")))
    step = len(found) // _POINTS + 1
    return tuple(found[::-step][::-1])
