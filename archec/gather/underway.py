"""Files in progress: one table of all URLs from the moment they are queued for the fetchers until their visit ends; and
the results of visits that have ended.

A URL is in one of four states: it is being *fetched*; it *redirects* and waits for the result of its target; the *text*
of its body is being extracted; its host was *silent*, and it waits for another host to show that the network is up.
Each URL is fetched at most once in a run; URLs that redirect to it wait for it. Only URLs in progress and the last
visits are kept in memory: older ones are in the catalogue.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import Obi
from archec.gather.visits import Effect, VisitResult
from archec.web.outcome import Hop

State = Literal["fetched", "redirects", "text", "silent"]


@dataclass(slots=True)
class Active:
    """A URL in progress.

    ``known``: the catalogue has a document of it; ``planned``: it is in the plan, not only the target of another URL;
    ``unnamed``: no template mentions it any more. ``hop`` is its answer, once received; ``result`` is the result of
    its body, without the extracted text. ``target`` is the URL it redirects to, ``waiting`` are the URLs that redirect
    to it.
    """

    fobi: Obi
    known: bool
    planned: bool
    unnamed: bool = False
    state: State = "fetched"
    hop: Hop | None = None
    result: VisitResult | None = None
    target: str = ""
    waiting: list[str] = field(default_factory=list)

    @property
    def answer(self) -> Hop:
        """Its answer; a failure if there is none."""
        return self.hop or Hop(self.fobi.id, "failed")


class UnderWay:
    """The table. ``max_redirects`` bounds the chains of redirects."""

    def __init__(self, max_redirects: int) -> None:
        self._max_redirects = max_redirects
        self._table: dict[str, Active] = {}
        self._states: Counter[State] = Counter()

    def __contains__(self, url: str) -> bool:
        return url in self._table

    def count(self, state: State) -> int:
        return self._states[state]

    def get(self, url: str, *states: State) -> Active | None:
        """The URL, if it is in one of these states."""
        active = self._table.get(url)
        return active if active is not None and active.state in states else None

    def __iter__(self) -> Iterator[Active]:
        return iter(self._table.values())

    def in_state(self, state: State) -> Iterator[Active]:
        return (active for active in self._table.values() if active.state == state)

    def begin(
        self, fobi: Obi, *, known: bool, planned: bool, unnamed: bool = False, waiting: Active | None = None
    ) -> None:
        """Adds a URL that is queued for the fetchers; ``waiting`` is the one that redirects to it."""
        self._table[fobi.id] = active = Active(fobi, known, planned, unnamed)
        self._states["fetched"] += 1
        if waiting is not None:
            active.waiting.append(waiting.fobi.id)

    def plan(self, url: str) -> bool:
        """Whether a URL of the plan is already in progress, as the target of another; it then becomes planned, too."""
        active = self._table.get(url)
        if active is None:
            return False
        active.planned = True
        return True

    def redirect(self, active: Active, hop: Hop, target: str) -> str:
        """Marks a URL as redirecting to ``target`` and waiting for it; returns ``""``, or the outcome that ends the
        chain (``redirect-loop``, ``too-many-redirects``).

        URLs that wait for it may then be too far from the end; that is checked when the result is passed on.
        """
        if self._depth(active) >= self._max_redirects:
            return "too-many-redirects"
        step: str = target
        while step:
            if step == active.fobi.id:
                return "redirect-loop"
            following = self._table.get(step)
            step = following.target if following is not None else ""
        active.hop, active.target = hop, target
        self._move(active, "redirects")
        goal = self._table.get(target)
        if goal is not None:
            goal.waiting.append(active.fobi.id)
        return ""

    def _depth(self, active: Active) -> int:
        """The number of redirects from the nearest URL that the archive knows; unknown URLs are only hops of others."""
        depth, layer = 0, [active]
        while layer and not any(one.known for one in layer):
            layer = [waiting for one in layer for waiting in self._waiting(one)]
            depth += 1
        return depth

    def extract(self, active: Active, result: VisitResult) -> None:
        """Marks a URL as waiting for the text of its body."""
        active.hop, active.result = result.hop, result
        self._move(active, "text")

    def silence(self, active: Active, hop: Hop) -> None:
        """Marks a URL whose host did not answer."""
        active.hop = hop
        self._move(active, "silent")

    def requeue(self, active: Active) -> None:
        """Queues a URL for the fetchers again; its previous result does not count."""
        active.hop, active.result, active.target = None, None, ""
        self._move(active, "fetched")

    def end(self, active: Active) -> list[Active]:
        """Ends a visit. Removes the URL, and those that waited for it, from the table, and returns the latter."""
        self._drop(active)
        return [self._drop(one) for one in self._waiting(active)]

    def _waiting(self, active: Active) -> list[Active]:
        """The URLs that still redirect to this one: they may have been queued for the fetchers again."""
        found = (self.get(url, "redirects") for url in dict.fromkeys(active.waiting))
        return [one for one in found if one is not None and one.target == active.fobi.id]

    def forget(self, state: State) -> int:
        """Drops all URLs in a state and returns their number."""
        forgotten = list(self.in_state(state))
        for active in forgotten:
            self._drop(active)
        return len(forgotten)

    def _drop(self, active: Active) -> Active:
        if self._table.pop(active.fobi.id, None) is not None:
            self._states[active.state] -= 1
        return active

    def _move(self, active: Active, state: State) -> None:
        self._states[active.state] -= 1
        active.state = state
        self._states[state] += 1


_RECENT = 2000
"""Number of visits kept in memory, more than a batch has; older ones are read from the catalogue."""


class VisitLog:
    """The effects of a run's visits: the last ones from memory, the others from the catalogue."""

    def __init__(self, catalogue: Catalogue, run: int, max_redirects: int) -> None:
        self._catalogue, self._run, self._max_redirects = catalogue, run, max_redirects
        self._recent: OrderedDict[str, Effect] = OrderedDict()

    def remember(self, url: str, effect: Effect) -> None:
        self._recent[url] = effect
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    def forget(self, url: str) -> list[str]:
        """Drops the effect of a visit; returns the last visits that redirected to it."""
        self._recent.pop(url, None)
        return [one for one, effect in self._recent.items() if effect.visit.target == url]

    def effect(self, url: str, fobi: Obi | None) -> Effect | None:
        """This run's effect on the URL with the document ``fobi``; None if it was not visited yet."""
        effect = self._recent.get(url)
        if effect is not None or fobi is None or fobi.visit is None or fobi.visit.tist != self._run:
            return effect
        entry = fobi.history.entry_at(self._run)
        version = fobi.version_at(self._run) if fobi.visit.checked == self._run else None
        place = (entry[0], url) if entry is not None else None
        hops = self._hops_from(fobi) if version is not None else 0
        record = ObiChange("fobi", fobi.id, visit=fobi.visit, due=fobi.due)
        return Effect(record, False, version, place, hops)

    def _hops_from(self, fobi: Obi) -> int:
        """The number of redirects from a URL to its contents at its last visit."""
        hops, step = 0, fobi.visit
        while step is not None and step.target and hops <= self._max_redirects:
            hops += 1
            further = self._catalogue.obis("fobi", [step.target]).get(step.target)
            step = further.visit if further is not None else None
        return hops
