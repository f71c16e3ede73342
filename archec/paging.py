"""Long lists in parts: a stream cut into lists, and queries that continue where the last page ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")
_Key = TypeVar("_Key")


def batched(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Yields lists of ``size`` items; the last one may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def paged(page: Callable[[_Key], Sequence[_T]], start: _Key, key: Callable[[_T], _Key]) -> Iterator[_T]:
    """Yields the items of all pages. ``page`` returns those after a key; ``key`` is that of an item."""
    while found := page(start):
        yield from found
        start = key(found[-1])
