"""What a benchmark found: measures with their medians, ratios with their goals; as a table and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.machine import BUSY, Load

__all__ = ["Figure", "Measure", "Report", "at_least", "at_most"]


@dataclass(frozen=True, slots=True)
class Measure:
    """Something measured once in each round. ``group`` is the table it stands in."""

    group: str
    name: str
    unit: str
    values: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.values)

    def as_value(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "median": rounded(self.median),
            "values": [rounded(value) for value in self.values],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio or another figure that is to be judged. ``limit`` is None where there is no goal."""

    name: str
    value: float
    unit: str = ""
    limit: float | None = None
    lower_is_better: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        if self.limit is None:
            return None
        return self.value <= self.limit if self.lower_is_better else self.value >= self.limit

    @property
    def goal(self) -> str:
        """The goal in words, empty where there is none."""
        if self.limit is None:
            return ""
        return f"at {'most' if self.lower_is_better else 'least'} {number(self.limit)}{_unit(self.unit)}"

    def as_value(self) -> dict[str, Any]:
        """As JSON."""
        value: dict[str, Any] = {"name": self.name, "value": rounded(self.value), "unit": self.unit}
        return value | ({"goal": self.goal, "met": self.met} if self.limit is not None else {})


def at_least(name: str, value: float, limit: float, unit: str = "") -> Figure:
    """A figure that should not be smaller than ``limit``."""
    return Figure(name, value, unit, limit)


def at_most(name: str, value: float, limit: float, unit: str = "") -> Figure:
    """A figure that should not be greater than ``limit``."""
    return Figure(name, value, unit, limit, True)


@dataclass(slots=True)
class Report:
    """All that a benchmark has to say."""

    benchmark: str
    date: str
    machine: dict[str, str]
    arguments: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    measures: list[Measure] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, group: str, name: str, unit: str, values: Sequence[float], note: str = "") -> Measure:
        """Adds a measure and returns it."""
        measure = Measure(group, name, unit, tuple(values), note)
        self.measures.append(measure)
        return measure

    def compare(self, one: Measure, other: Measure, limit: float | None = None, *, name: str = "") -> None:
        """Adds the ratio of two measures, and its goal.

        It is the median of the ratios of the rounds, in which the two ran one after the other: what others
        do to the machine in the meantime matters less to it than to the ratio of the medians.
        """
        if len(one.values) == len(other.values):
            ratio = statistics.median(a / b for a, b in zip(one.values, other.values, strict=True))
        else:
            ratio = one.median / other.median
        self.figures.append(Figure(name or f"{one.group}: {one.name} / {other.name}", ratio, "x", limit))

    @property
    def load(self) -> Load:
        """The mean load by others over everything that was measured."""
        return Load.mean(self.loads)

    def as_value(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "benchmark": self.benchmark,
            "date": self.date,
            "machine": self.machine,
            "versions": self.versions,
            "arguments": self.arguments,
            "load": {
                "others_cores": rounded(self.load.others),
                "steal_cores": rounded(self.load.steal),
                "busy": self.load.others > BUSY,
            },
            "warnings": self.warnings,
            "skipped": self.skipped,
            "measures": [measure.as_value() for measure in self.measures],
            "ratios": [figure.as_value() for figure in self.figures],
        }

    def as_text(self) -> str:
        """As a person reads it."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"{self.benchmark}, {self.date}"
        yield "machine:  " + ", ".join(f"{value}" for value in self.machine.values())
        yield "versions: " + ", ".join(f"{name} {version}" for name, version in self.versions.items())
        load = self.load
        yield f"load:     others used {load.others:.2f} cores on average, steal {load.steal:.2f}"
        for peer, why in self.skipped.items():
            yield f"skipped:  {peer}: {why}"
        for warning in self.warnings:
            yield f"WARNING:  {warning}"
        group = ""
        for measure in self.measures:
            if measure.group != group:
                group = measure.group
                yield f"\n{group}"
            spread = ""
            if len(measure.values) > 1:
                spread = f"({number(min(measure.values))} to {number(max(measure.values))})"
            row = f"  {measure.name:34}{number(measure.median):>10} {measure.unit:<12}{spread:<20} {measure.note}"
            yield row.rstrip()
        if self.figures:
            yield "\nratios and goals"
            width = max(len(figure.name) for figure in self.figures) + 2
            for figure in self.figures:
                verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
                value = f"{number(figure.value)}{_unit(figure.unit)}"
                yield f"  {figure.name:{width}}{value:>14}  {figure.goal:28}{verdict}".rstrip()


def _unit(unit: str) -> str:
    return unit if unit in ("", "x") else f" {unit}"


def number(value: float) -> str:
    """A number with about three digits that count."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def rounded(value: float) -> float:
    """A number with five digits that count."""
    return float(f"{value:.5g}")
