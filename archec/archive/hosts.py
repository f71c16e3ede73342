"""Hosts: what a run's visits to each came to, and which of them are in trouble."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

FAULTS = frozenset(
    ("server-error", "unreachable", "timeout", "truncated", "forbidden", "bad-certificate", "blocked-address")
)
"""Outcomes that speak of the host and not of the one file."""

_MOST_HOSTS = 50_000
"""Maximum number of hosts tracked individually; visits to others count for no host."""
_MOST_TROUBLE = 100
_MOST_LARGE = 30


class HostFigures(NamedTuple):
    """One host: visits, number of its files that wait for the next run, visits by outcome."""

    host: str
    visits: int
    deferred: int
    outcomes: dict[str, int]

    @classmethod
    def of(cls, value: dict[str, Any]) -> HostFigures:
        """From the JSON value in a report."""
        return cls(str(value["host"]), int(value["visits"]), int(value["deferred"]), dict(value["outcomes"]))

    @property
    def faults(self) -> int:
        """Visits that failed through the host's fault."""
        return sum(count for outcome, count in self.outcomes.items() if outcome in FAULTS)

    @property
    def in_trouble(self) -> bool:
        """Whether files wait for the next run, or at least half of the visits failed through the host's fault."""
        return bool(self.deferred or (self.visits and 2 * self.faults >= self.visits))


class Hosts:
    """Running totals by host. Memory is bounded: see ``_MOST_HOSTS``."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Counter[str]] = {}
        self._deferred: Counter[str] = Counter()

    def visited(self, host: str, outcome: str, times: int = 1) -> None:
        """Adds visits to files of this host; a negative number takes visits back."""
        found = self._outcomes.get(host)
        if found is None:
            if len(self._outcomes) >= _MOST_HOSTS:
                return
            found = self._outcomes[host] = Counter()
        found[outcome] += times
        if not found[outcome]:
            del found[outcome]
        if not found:
            del self._outcomes[host]

    def put_off(self, host: str, files: int = 1) -> None:
        """Counts files of this host that wait for the next run."""
        if host in self._deferred or len(self._deferred) < _MOST_HOSTS:
            self._deferred[host] += files

    def restore(self, value: dict[str, Any]) -> None:
        """Takes over what waited before a pause; visits are counted again, from the journal."""
        for item in value.get("trouble", ()):
            self.put_off(item["host"], item["deferred"])

    def as_value(self) -> dict[str, Any]:
        """The hosts in trouble (the worst ones first) and those with the most visits, as JSON values."""
        mostly: Counter[str] = Counter()
        trouble: list[HostFigures] = []
        for figures in self._all():
            if figures.outcomes:
                mostly[max(figures.outcomes.items(), key=lambda item: (item[1], item[0]))[0]] += 1
            if figures.in_trouble:
                trouble.append(figures)
        trouble.sort(key=lambda figures: (-figures.faults - figures.deferred, figures.host))
        largest = sorted(self._all(), key=lambda figures: (-figures.visits, figures.host))[:_MOST_LARGE]
        return {
            "visited": len(self._outcomes),
            "in_trouble": len(trouble),
            "by_outcome": dict(sorted(mostly.items())),
            "trouble": [_value(figures) for figures in trouble[:_MOST_TROUBLE]],
            "largest": [_value(figures) for figures in largest if figures.visits],
        }

    def _all(self) -> Iterable[HostFigures]:
        for host in self._outcomes.keys() | self._deferred.keys():
            outcomes = self._outcomes.get(host) or Counter()
            yield HostFigures(host, sum(outcomes.values()), self._deferred[host], dict(sorted(outcomes.items())))


def _value(figures: HostFigures) -> dict[str, Any]:
    return figures._asdict()
