"""Shared bodies: bytes that many URLs of one host have are hardly what these are for (a soft 404, a login page)."""

from __future__ import annotations

from collections import OrderedDict

from archec.catalogue.interface import Catalogue
from archec.ids import host_of

MANY = 5
"""So many URLs of a host with the same body are suspect."""
_REMEMBERED = 50_000


class SharedBodies:
    """Which URLs of a host have the same body: of this run and, by the catalogue, of earlier ones."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._known: OrderedDict[tuple[str, str], set[str]] = OrderedDict()

    def others(self, url: str, sha256: str) -> set[str]:
        """Up to :data:`MANY` other URLs of the host with the same body; this one is remembered."""
        key = host_of(url), sha256
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = set(self._catalogue.sharing(*key, MANY))
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        found = known - {url}
        if len(known) <= MANY:
            known.add(url)
        return found
