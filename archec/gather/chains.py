"""Chains: redirects, hop by hop, within one run.

Each URL is fetched at most once in a run; whoever redirects to it waits for it. Pure bookkeeping:
no I/O, and memory only for what is on its way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from archec.web.task import Hop

__all__ = ["Chains", "Waiter"]


@dataclass(frozen=True, slots=True)
class Waiter:
    """A URL that redirected, and the hop that said so."""

    url: str
    hop: Hop


class Chains:
    """Who waits for whom."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: defaultdict[str, list[Waiter]] = defaultdict(list)
        self._leads_to: dict[str, str] = {}
        self._depth: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._leads_to)

    def follow(self, hop: Hop, target: str, *, own: bool) -> str:
        """Notes that ``hop.url`` redirects to ``target``: ``""``, or the outcome that ends the chain
        (``redirect-loop``, ``too-many-redirects``).

        ``own``: the URL stands for itself and is not only a hop of others, so that its chain is counted from it
        on. Whoever waits for it may then be too far from the end; who releases it counts that.
        """
        url = hop.url
        depth = (0 if own else self._depth.get(url, 0)) + 1
        if depth > self._most:
            return "too-many-redirects"
        step: str | None = target
        while step is not None:
            if step == url:
                return "redirect-loop"
            step = self._leads_to.get(step)
        self._leads_to[url] = target
        self._depth[target] = max(depth, self._depth.get(target, 0))
        self._waiting[target].append(Waiter(url, hop))
        return ""

    def release(self, url: str) -> list[Waiter]:
        """Those that waited for ``url``, whose result is known now."""
        waiters = self._waiting.pop(url, [])
        for waiter in waiters:
            self._leads_to.pop(waiter.url, None)
        self._depth.pop(url, None)
        return waiters
