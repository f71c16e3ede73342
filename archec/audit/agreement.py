"""Agreement: what the catalogue says of the entries that a lot of journal lines names."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from archec.audit.entries import Entry
from archec.catalogue.codec import history_of
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import ObiState
from archec.errors import CatalogueError
from archec.history import History

__all__ = ["Known", "entry_at", "histories", "objection"]

_TOBI = "RePEc:"
_SLACK = 2000


Known = History | ObiState
"""A history, or the row of a scan that holds one."""


def histories(catalogue: Catalogue, ids: Collection[str]) -> dict[str, Known]:
    """The histories of those of ``ids`` that the catalogue knows."""
    tobis = [obi for obi in ids if obi.startswith(_TOBI)]
    found = _scanned(catalogue, tobis)
    rest = [obi for obi in tobis if obi not in found]
    if rest:
        found.update((obi, tobi.history) for obi, tobi in catalogue.obis("tobi", rest).items())
    if len(tobis) < len(ids):
        others = [obi for obi in ids if not obi.startswith(_TOBI)]
        found.update((obi, fobi.history) for obi, fobi in catalogue.obis("fobi", others).items() if fobi.history)
        strange = [obi for obi in others if obi not in found]  # handles that are not of RePEc's form, mostly
        found.update((obi, tobi.history) for obi, tobi in catalogue.obis("tobi", strange).items())
    return found


def _scanned(catalogue: Catalogue, ids: Collection[str]) -> dict[str, Known]:
    """Most of ``ids``, where they lie densely among all: a scan costs a tenth of asking for each."""
    if len(ids) < 2:
        return {}
    wanted, least, most = set(ids), min(ids), max(ids)
    found: dict[str, Known] = {}
    for state in islice(catalogue.scan(least), 4 * len(ids) + _SLACK):
        if state.id in wanted:
            found[state.id] = state
        if state.id >= most:
            break
    return found


def entry_at(known: Known | None, when: int) -> tuple[int, str | None] | None:
    """The entry in force as of ``when``: (tist, state), None before the obi was found."""
    if isinstance(known, ObiState):
        if known.h is None:
            return (known.last, known.state) if known.last <= when else None
        obi, text = known.id, known.h
        try:
            known = history_of(text)
        except CatalogueError as error:
            raise CatalogueError(f"the history of {obi} in the catalogue is no history: {error}") from error
    return known.entry_at(when) if known is not None else None


def objection(entry: Entry, known: Known | None) -> tuple[str, str] | None:
    """Where the catalogue does not say what the journal says: what it says (a sha256, "lost" or "") in words.

    An entry that only repeats the one before it is dropped from a history (its bytes stay), so the state
    in force at its tist counts. Gives the catalogue's sha256 (or "") and a sentence.
    """
    there = entry_at(known, entry.tist)
    if there is None:
        return "", "the catalogue does not know it"
    tist, state = there
    if state == entry.sha256:
        return None
    if state is None:
        return "", f"the catalogue has it as lost from {tist} on"
    if tist != entry.tist:
        return "", f"the catalogue has nothing of that tist, and at {tist} the sha256 {state}"
    return state, f"the catalogue says {state}"


