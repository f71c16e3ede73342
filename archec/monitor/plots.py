"""Plots of incidences and sizes over time and of coverage by archive, as SVG text.

Matplotlib is imported only here, and only when a plot is drawn.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from archec.archive.report import FAULTS, HostFigures, RunReport
from archec.catalogue.interface import Catalogue
from archec.errors import ConfigError
from archec.monitor.runs import RunView
from archec.progress import SILENT, Meter
from archec.report.coverage import CoverageRow, coverage
from archec.tist import MAX_TIST
from archec.units import human_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("new", "changed", "returned", "lost")
_CHANGED = ("changed", "cosmetic", "file-url")
_BINS = 60
_STEPS = (1, 7, 28, 3 * 28, 12 * 28, 60 * 28, 240 * 28, 1200 * 28, 2400 * 28)
"""The possible lengths of a period in a plot, in days; 28 stands for a month. Periods begin on calendar dates."""
_POINTS = 1500
_DAY = 86400
_LEAST = 0.7
"""Start of a logarithmic axis: below 1, so that a single incidence is visible."""
_MARKS = {"new": "o", "changed": "s", "returned": "^", "lost": "v"}
_COLOURS = {"new": "#2a7f3f", "changed": "#2f6fab", "returned": "#8a63b5", "lost": "#b5402f"}
_WIDTH = 9.0
_MOST_LABEL = 40
_BAD, _GOOD, _GREY = "#b5402f", "#2a7f3f", "#b8b8b8"
_SETTINGS: dict[str, object] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "archec",
    "text.parse_math": False,
    "text.usetex": False,
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_ID = re.compile(r'(\bid="|url\(#|href="#)')


@dataclass(slots=True)
class Bin:
    """A period [``start``, ``end``) and its incidences by kind; tobis by the date of their data set, fobis by that of
    their run."""

    start: int
    end: int
    tobis: Counter[str] = field(default_factory=Counter)
    fobis: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes that all runs up to ``run`` wrote to the obi store, and the obis held then (None: not recorded)."""

    run: int
    stored_bytes: int
    tobis_held: int | None
    fobis_held: int | None


@dataclass(frozen=True, slots=True)
class Series:
    """Incidences and growth over time, oldest first."""

    incidences: tuple[Bin, ...]
    growth: tuple[Growth, ...]

    def as_value(self) -> dict[str, Any]:
        return {
            "incidences": [
                {"start": item.start, "end": item.end, "tobis": dict(item.tobis), "fobis": dict(item.fobis)}
                for item in self.incidences
            ],
            "growth": [asdict(item) for item in self.growth],
        }


def series_of(views: Iterable[RunView]) -> Series:
    """The series of runs, which are given newest first. Only a few hundred bytes are kept per run."""
    runs = [replace(view, options={}, report=_plotted(view.figures)) for view in views]
    runs.reverse()
    return Series(_bins(runs), _growth(runs))


def coverage_by_archive(catalogue: Catalogue, meter: Meter = SILENT) -> list[CoverageRow]:
    """The coverage of each archive, sorted by decreasing number of works."""
    archives: dict[str, CoverageRow] = {}
    for row in coverage(catalogue, meter=meter):
        archives.setdefault(row.archive, CoverageRow(row.archive, "")).add(row)
    return sorted(archives.values(), key=lambda row: (-row.works, row.archive))


def _plotted(of: RunReport) -> RunReport:
    """The figures that are plotted."""
    return RunReport(
        tobis=_incidences(of.tobis), fobis=_incidences(of.fobis), stored_bytes=of.stored_bytes, totals=of.totals
    )


def _incidences(counts: dict[str, int]) -> dict[str, int]:
    found = {kind: counts.get(kind, 0) for kind in KINDS}
    found["changed"] = sum(counts.get(kind, 0) for kind in _CHANGED)
    return found


def _bins(runs: list[RunView]) -> tuple[Bin, ...]:
    times = [tist for run in runs for tist in (run.run, run.data_set) if 0 < tist <= MAX_TIST]
    if not times:
        return ()
    first, last = min(times), max(times)
    starts = next(found for step in _STEPS if len(found := _dates(first, last, step)) <= _BINS + 1)
    bins = [Bin(start, end) for start, end in pairwise(starts)]
    for run in runs:
        of = run.figures
        for tist, counts, which in ((run.data_set or run.run, of.tobis, "tobis"), (run.run, of.fobis, "fobis")):
            if 0 < tist <= MAX_TIST:
                getattr(bins[bisect_right(starts, tist) - 1], which).update(counts)
    return tuple(bins)


def _dates(first: int, last: int, step: int) -> list[int]:
    """The beginnings of days, weeks (from Monday) or months, from before ``first`` to after ``last``, with a ``step``
    from :data:`_STEPS`; stops when there are too many."""
    months = step // 28
    if months:
        day = datetime.fromtimestamp(first, tz=timezone.utc)
        begin = (day.year * 12 + day.month - 1) // months * months
    else:
        begin = first // _DAY
        begin -= (begin + 3) % 7 if step == 7 else 0  # tist 0 was a Thursday
    found: list[int] = []
    while (not found or found[-1] <= last) and len(found) <= _BINS + 1:
        number = begin + len(found) * (months or step)
        found.append(_month(number) if months else number * _DAY)
    return found


def _month(number: int) -> int:
    """The tist at which a month begins, counted from the year 0."""
    if number >= 120_000:
        return MAX_TIST + 1
    return int(datetime(number // 12, number % 12 + 1, 1, tzinfo=timezone.utc).timestamp())


def _growth(runs: list[RunView]) -> tuple[Growth, ...]:
    found: list[Growth] = []
    stored = 0
    for run in runs:
        totals = run.figures.totals
        stored = totals.get("stored_bytes", stored + run.figures.stored_bytes)
        found.append(Growth(run.run, stored, totals.get("tobis_held"), totals.get("fobis_held")))
    step = len(found) // _POINTS + 1
    return tuple(found[::-step][::-1])


def need_matplotlib() -> None:
    """Raises :class:`ConfigError` if Matplotlib is not installed."""
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ConfigError(
            f"the page needs Matplotlib: {error}",
            hint="pip install 'archec[report]', in a checkout pip install '.[report]'; --json needs nothing",
        ) from error
    del matplotlib


def incidences_plot(bins: Sequence[Bin]) -> str:
    """A point for each kind of incidence and period, side by side on a logarithmic scale."""

    def draw(axes: Sequence[Axes]) -> None:
        labels = (("tobis", "templates", "data set"), ("fobis", "files", "run"))
        for one, (which, what, date_of) in zip(axes, labels, strict=True):
            for number, kind in enumerate(KINDS):
                points = [
                    (_days(item.start) + (number + 0.5) / len(KINDS) * _days(item.end - item.start), count)
                    for item in bins
                    if (count := getattr(item, which)[kind])
                ]
                days, counts = [day for day, _ in points], [count for _, count in points]
                one.vlines(days, _LEAST, counts, color=_COLOURS[kind], linewidth=1)
                one.plot(days, counts, color=_COLOURS[kind], label=kind, marker=_MARKS[kind], linestyle="none")
            one.set_xlim(_days(bins[0].start), _days(bins[-1].end))
            one.set_yscale("log")
            most = max((getattr(item, which)[kind] for item in bins for kind in KINDS), default=0)
            one.set_ylim(_LEAST, max(10, 2 * most))
            one.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}" if count >= 1 else "")
            _dated(one)
            one.set(ylabel=what, xlabel=f"date of the {date_of} (UTC)")
        axes[0].legend(ncols=4, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))

    return _svg(draw, "incidences", rows=2, height=5.2)


def growth_plot(points: Sequence[Growth]) -> str:
    """Bytes stored, and obis held, over the runs."""
    from matplotlib.ticker import MaxNLocator

    def draw(axes: Sequence[Axes]) -> None:
        days = [_days(point.run) for point in points]
        axes[0].step(days, [point.stored_bytes for point in points], where="post", color="#2f6fab", marker=".")
        axes[0].set_ylabel("stored")
        axes[0].yaxis.set_major_formatter(lambda size, _: human_size(int(size)))
        axes[0].set_ylim(bottom=0)
        for name, label, colour in (("tobis_held", "templates", "#2a7f3f"), ("fobis_held", "files", "#8a63b5")):
            held = [getattr(point, name) for point in points]
            known = [(day, count) for day, count in zip(days, held, strict=True) if count is not None]
            axes[1].step(
                [day for day, _ in known], [n for _, n in known], where="post", color=colour, marker=".", label=label
            )
        axes[1].set_ylabel("held")
        axes[1].yaxis.set_major_locator(MaxNLocator(integer=True))
        axes[1].yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
        for one in axes:
            one.set_xlim(days[0] - 0.5, days[-1] + 0.5)
            _dated(one)
            one.set_xlabel("date of the run (UTC)")
        axes[1].set_ylim(bottom=0)
        axes[1].legend(frameon=False)

    return _svg(draw, "growth", rows=2, height=4.8)


def hosts_plot(hosts: Sequence[HostFigures]) -> str:
    """One bar per host: visits that were answered, visits that failed through its fault, deferred files."""
    parts = (
        ("answered", _GOOD, [float(host.visits - host.faults) for host in hosts]),
        ("failed", _BAD, [float(host.faults) for host in hosts]),
        ("deferred", _GREY, [float(host.deferred) for host in hosts]),
    )
    return _bars([host.host for host in hosts], parts, "host", f"visits; failed: {', '.join(sorted(FAULTS))}")


def coverage_plot(rows: Sequence[CoverageRow]) -> str:
    """One bar per archive: works with and without a held file."""
    parts = (
        ("a file is held", _GOOD, [float(row.with_file) for row in rows]),
        ("none is", _GREY, [float(row.works - row.with_file) for row in rows]),
    )
    return _bars([row.archive for row in rows], parts, "archive", "works")


def _dated(axes: Axes) -> None:
    """Sets few and short dates below the axis."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _bars(names: Sequence[str], parts: Sequence[tuple[str, str, list[float]]], of: str, unit: str) -> str:
    """One bar per name, with the parts (their label, colour and lengths) one after the other."""

    def draw(axes: Sequence[Axes]) -> None:
        (one,) = axes
        places = list(range(len(names)))
        base = [0.0] * len(names)
        for label, colour, values in parts:
            one.barh(places, values, left=base, color=colour, label=label)
            base = [a + b for a, b in zip(base, values, strict=True)]
        one.set_yticks(places, [_label(name) for name in names])
        one.invert_yaxis()
        one.legend(ncols=3, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
        one.set(ylabel=of, xlabel=unit)

    return _svg(draw, of, height=0.9 + 0.24 * max(len(names), 3))


def _svg(draw: Callable[[Sequence[Axes]], None], prefix: str, *, rows: int = 1, height: float) -> str:
    """One plot as SVG; its ids begin with ``prefix``, so that a page can contain several plots."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context(_SETTINGS):  # type: ignore[arg-type]
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw([figure.add_subplot(rows, 1, n + 1) for n in range(rows)])
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    picture = out.getvalue()
    return _ID.sub(rf"\g<1>{prefix}-", picture[picture.index("<svg") :])


def _days(tist: int) -> float:
    """A tist as days since 1970, as Matplotlib expects."""
    return tist / _DAY


def _label(text: str) -> str:
    """Text from outside as a label: printable ASCII, truncated."""
    plain = "".join(c if 32 <= ord(c) < 127 else "?" for c in text)
    return plain if len(plain) <= _MOST_LABEL else plain[: _MOST_LABEL - 3] + "..."
