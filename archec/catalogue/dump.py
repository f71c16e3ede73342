"""The catalogue as text: canonical JSON lines, the same from every engine.

Without ``everything`` a dump says what the archive holds and no more: it does not depend on when
archec ran or in which order data sets were replayed (design, invariants 3 and 4, section 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import orjson

from archec.catalogue.codec import canonical, data_set_value, fobi_value, history_value, run_value, tobi_value
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import TobiState
from archec.errors import CatalogueError

__all__ = ["dump"]


def dump(catalogue: Catalogue, *, everything: bool) -> Iterator[str]:
    """One line (without its end) for each document, by collection and id.

    The collections come as mi, mo, vi, vo and, with ``everything``, data_sets, runs, seen, state;
    then mi and mo are whole documents, else ``{"h": {tist: md5 or null}}`` of all obis that ever
    were held. Holds one page in memory. Raises :class:`CatalogueError` as reading does.
    """
    yield from _whole_obis(catalogue) if everything else _obis(catalogue)
    yield from _texts(catalogue, "vi")
    yield from _texts(catalogue, "vo")
    if everything:
        yield from _rest(catalogue)


def _line(collection: str, document: dict[str, Any]) -> str:
    return canonical({**document, "collection": collection})


def _obis(catalogue: Catalogue) -> Iterator[str]:
    for tobi in catalogue.scan_tobis():
        yield _line("mi", {"id": tobi.id, "h": _states(tobi)})
    for fobi in catalogue.all_fobis():
        if fobi.history.tists:
            yield _line("mo", {"id": fobi.id, "h": history_value(fobi.history)})


def _states(tobi: TobiState) -> object:
    if tobi.h is None:
        return {str(tobi.last): tobi.state}
    try:
        return orjson.loads(tobi.h)
    except orjson.JSONDecodeError as error:
        raise CatalogueError(f"the history of {tobi.id!r} in the catalogue is not JSON") from error


def _whole_obis(catalogue: Catalogue) -> Iterator[str]:
    for tobi in catalogue.all_tobis():
        yield _line("mi", tobi_value(tobi))
    for fobi in catalogue.all_fobis():
        yield _line("mo", fobi_value(fobi))


def _texts(catalogue: Catalogue, which: Literal["vi", "vo"]) -> Iterator[str]:
    for text, tist, obi in catalogue.texts(which):
        yield _line(which, {"id": text, "at": {"tist": tist, "id": obi}})


def _rest(catalogue: Catalogue) -> Iterator[str]:
    data_sets = catalogue.data_sets()
    for data_set in data_sets:
        yield _line("data_sets", {**data_set_value(data_set), "id": data_set.tist})
    for run in catalogue.runs():
        yield _line("runs", {**run_value(run), "id": run.tist})
    for key in sorted({key for data_set in data_sets for keys in data_set.partial.values() for key in keys}):
        ids = catalogue.seen(key)
        yield _line("seen", {"id": key, "ids": None if ids is None else ids.hex()})
    yield _line("state", {"id": "position", **catalogue.position()._asdict()})
