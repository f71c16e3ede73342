"""Counting requests, and the text of ``/metrics`` (Prometheus' text format 0.0.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from archec.server.capability import Figure

__all__ = ["Requests", "as_text"]

_LIMITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Requests:
    """Requests by capability and status, bytes sent, and how long they took. One thread only."""

    def __init__(self) -> None:
        self.active = 0
        self._by: Counter[tuple[str, int]] = Counter()
        self._bytes: Counter[str] = Counter()
        self._within: Counter[float] = Counter()
        self._seconds = 0.0

    def done(self, part: str, status: int, size: int, seconds: float) -> None:
        """Counts one request that has come to its end."""
        self._by[part, status] += 1
        self._bytes[part] += size
        self._seconds += seconds
        for limit in _LIMITS:
            if seconds <= limit:
                self._within[limit] += 1

    def figures(self) -> Iterator[Figure]:
        """The figures at this moment."""
        total = sum(self._by.values())
        for (part, status), count in sorted(self._by.items()):
            labels = (("part", part), ("status", str(status)))
            yield Figure("archec_http_requests_total", count, "Requests that were answered.", labels)
        for part, size in sorted(self._bytes.items()):
            yield Figure("archec_http_sent_bytes_total", size, "Bytes of bodies sent.", (("part", part),))
        yield Figure("archec_http_requests_active", self.active, "Requests in work.")
        for limit in _LIMITS:
            within = (("le", f"{limit:g}"),)
            yield Figure("archec_http_request_seconds_bucket", self._within[limit], "Time to answer.", within)
        yield Figure("archec_http_request_seconds_bucket", total, "Time to answer.", (("le", "+Inf"),))
        yield Figure("archec_http_request_seconds_sum", self._seconds, "Time to answer.")
        yield Figure("archec_http_request_seconds_count", total, "Time to answer.")


def as_text(figures: Iterable[Figure]) -> str:
    """The figures in Prometheus' text format."""
    lines: list[str] = []
    for name, group in groupby(figures, key=lambda figure: _family(figure.name)):
        some = list(group)
        lines += [f"# HELP {name} {some[0].help}", f"# TYPE {name} {_type(some[0].name)}"]
        for figure in some:
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in figure.labels)
            value = f"{figure.value:.6f}".rstrip("0").rstrip(".") if figure.value % 1 else f"{figure.value:.0f}"
            lines.append(f"{figure.name}{{{labels}}} {value}" if labels else f"{figure.name} {value}")
    return "\n".join(lines) + "\n"


def _family(name: str) -> str:
    for ending in ("_bucket", "_sum", "_count"):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def _type(name: str) -> str:
    if _family(name) != name:
        return "histogram"
    return "counter" if name.endswith("_total") else "gauge"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
