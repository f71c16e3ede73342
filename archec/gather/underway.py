"""Under way: the URLs between the moment that they are handed to the fetchers and the end of their visit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from archec.catalogue.model import Fobi
from archec.web.task import Hop

__all__ = ["Active", "UnderWay"]


class Active(NamedTuple):
    """A URL on its way: its document, whether the catalogue has one, whether the plan asked for it."""

    fobi: Fobi
    known: bool
    planned: bool


@dataclass(slots=True)
class UnderWay:
    """Each URL is in at most one of these: being fetched, waiting for the target of its redirect, having its text
    taken out (with its hop and its media type)."""

    fetching: dict[str, Active] = field(default_factory=dict)
    redirecting: dict[str, Active] = field(default_factory=dict)
    reading: dict[str, tuple[Active, Hop, str]] = field(default_factory=dict)

    def __contains__(self, url: str) -> bool:
        return url in self.fetching or url in self.redirecting or url in self.reading

    def room(self, window: int) -> int:
        """How many more may be handed to the fetchers."""
        return window - len(self.fetching) - len(self.redirecting)

    def plan_too(self, url: str) -> bool:
        """Whether a URL of the plan is under way already, as some other one's target or
        since it was begun before the plan was made; it is planned then."""
        for under_way in (self.fetching, self.redirecting):
            active = under_way.get(url)
            if active is not None:
                under_way[url] = active._replace(planned=True)
                return True
        read = self.reading.get(url)
        if read is not None:
            self.reading[url] = (read[0]._replace(planned=True), *read[1:])
        return read is not None
