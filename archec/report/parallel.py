"""Coverage of a whole catalogue by several processes, in order, and beginning at once.

The catalogue is parted between archives. This process takes the parts from the front, so that rows come from the
start; the others take them in order, too, and what they have done is not done again. A part whose process dies is
done here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from archec.catalogue.interface import Catalogue
from archec.catalogue.open import open_catalogue
from archec.ids import archive_of
from archec.report.coverage import Coverage, Tell, coverage, last_of

__all__ = ["coverage_of_all"]

_PARTS = 24
_LEAST = 20_000
"""Tobis of one part: a process takes a third of a second to start, in which it could look at as many."""


class _Part(NamedTuple):
    url: str
    base: Path
    after: str
    before: str


def coverage_of_all(
    catalogue: Catalogue,
    url: str,
    base: Path,
    *,
    workers: int | None = None,
    least: int = _LEAST,
    tell: Tell = lambda works: None,
) -> Iterator[Coverage]:
    """As :func:`archec.report.coverage.coverage` over everything.

    ``url`` and ``base`` are what :func:`archec.catalogue.open.open_catalogue` needs to open the catalogue again;
    ``workers`` how many processes work at once, by default one for each core that this process may use.
    """
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    cuts = _between_archives(catalogue.split(_PARTS, least)) if workers > 1 else []
    if not cuts:
        yield from coverage(catalogue, tell=tell)
        return
    import multiprocessing  # takes a while to import, and most catalogues do not need it
    from concurrent.futures import ProcessPoolExecutor

    parts = [_Part(url, base, after, before) for after, before in pairwise(["", *cuts, ""])]
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(parts)) - 1, context, initializer=_ignore_interrupts)
    try:
        # The first part is ours from the start; of the rest each is begun by whoever is free.
        without = Coverage("", "")
        for row in _joined(catalogue, parts, [None, *(pool.submit(_work, part) for part in parts[1:])], tell):
            if row.archive:
                yield row
            else:
                without.add(row)
        if without.works:
            yield without
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _joined(
    catalogue: Catalogue, parts: list[_Part], given: list[Future[list[Coverage]] | None], tell: Tell
) -> Iterator[Coverage]:
    """The rows of all parts in order; while the next one is at work elsewhere, a later one is done here."""
    done: dict[int, list[Coverage]] = {}
    for number, future in enumerate(given):
        if number in done:
            yield from done.pop(number)
            continue
        if future is None or future.cancel():
            yield from _here(catalogue, parts[number], tell)
            continue
        for later in range(len(parts) - 1, number, -1):
            if future.done():
                break
            other = given[later]
            if later not in done and other is not None and other.cancel():
                done[later] = list(_here(catalogue, parts[later], tell))
        try:
            rows = future.result()
        except BrokenExecutor:
            yield from _here(catalogue, parts[number], tell)
        else:
            tell(sum(row.works for row in rows))
            yield from rows


def _here(catalogue: Catalogue, part: _Part, tell: Tell) -> Iterator[Coverage]:
    return coverage(catalogue, after=part.after, before=part.before, tell=tell)


def _between_archives(ids: list[str]) -> list[str]:
    """Ids near those given that lie between archives, each once, in order."""
    return sorted({last_of(archive_of(obi)) for obi in ids if archive_of(obi)})


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(part: _Part) -> list[Coverage]:
    """In a process of the pool. (Each opens the catalogue anew: that takes a millisecond.)"""
    catalogue = open_catalogue(part.url, base=part.base, read_only=True)
    try:
        return list(coverage(catalogue, after=part.after, before=part.before))
    finally:
        catalogue.close()
