"""Known: what a run has learnt of URLs already, by itself or before it was interrupted."""

from __future__ import annotations

from collections import OrderedDict

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi
from archec.catalogue.records import ObiChange
from archec.gather.visits import Effect

_RECENT = 20_000


class Known:
    """The effects of a run's visits: the last ones from memory, the others from the catalogue."""

    def __init__(self, catalogue: Catalogue, run: int, max_redirects: int) -> None:
        self._catalogue, self._run, self._max_redirects = catalogue, run, max_redirects
        self._recent: OrderedDict[str, Effect] = OrderedDict()

    def remember(self, url: str, effect: Effect) -> None:
        """A visit is over."""
        self._recent[url] = effect
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    def effect(self, url: str, fobi: Obi | None) -> Effect | None:
        """What this run knows of the URL, whose document is ``fobi``; None: it was not visited yet."""
        effect = self._recent.get(url)
        if effect is not None or fobi is None or fobi.visit is None or fobi.visit.tist != self._run:
            return effect
        state = fobi.history.at(self._run)
        entry = fobi.history.entry_at(self._run)
        held = state is not None and fobi.visit.checked == self._run
        version = fobi.versions.get(state) if held and state is not None else None
        place = (entry[0], url) if entry is not None else None
        hops = self._hops_from(fobi) if version is not None else 0
        record = ObiChange("fobi", fobi.id, visit=fobi.visit, due=fobi.due)
        return Effect(record, fobi.visit.outcome, False, version, place, hops)

    def _hops_from(self, fobi: Obi) -> int:
        """How many redirects led from a URL to its contents when it was last visited."""
        hops, step = 0, fobi.visit
        while step is not None and step.target and hops <= self._max_redirects:
            hops += 1
            further = self._catalogue.obis("fobi", [step.target]).get(step.target)
            step = further.visit if further is not None else None
        return hops
