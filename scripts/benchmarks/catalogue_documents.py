"""Documents for the catalogue in the shape and size of RePEc's: ids in ascending order, 1.3 files and one text each."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5

from archec.catalogue.model import Changes, Position, Refipo, TextPlace, Tobi, TobiNote, TobiVersion
from archec.history import History

__all__ = ["FIRST", "LOT", "SECOND", "handle", "lots", "stamp_of", "urls"]

LOT = 2000
"""Documents of one batch."""
FIRST, SECOND = 1352481230, 1384017230
_LOTS_OF_A_STAMP = 50
_ARCHIVE = 5000


def handle(i: int) -> str:
    """The id of the i-th document."""
    return f"RePEc:a{i // _ARCHIVE:05d}:wpaper:{i % _ARCHIVE:06d}-x"


def urls(i: int) -> list[str]:
    """The files of the i-th document."""
    base = f"http://www.arch{i // _ARCHIVE:05d}.org/papers/wp{i % _ARCHIVE:06d}"
    return [f"{base}-{k}.pdf" for k in range(1 + (i % 10 < 3))]


def stamp_of(i: int) -> int:
    """The visibility stamp of the i-th document."""
    return i // LOT // _LOTS_OF_A_STAMP


def lots(rows: range, batch: int, *tists: int) -> Iterator[Changes]:
    """The documents ``rows``, noted at these tists, as the batches that a run commits."""
    for start in range(rows.start, rows.stop, LOT):
        here = range(start, min(start + LOT, rows.stop))
        tobis = [_tobi(i, *tists) for i in here]
        mentioned = [url for i in here for url in urls(i)]
        vi = [TextPlace(version.text, tists[-1], t.id) for t in tobis for version in list(t.versions.values())[-1:]]
        yield Changes(Position(tists[-1], batch + start // LOT, start), tobis=tobis, mentioned=mentioned, vi=vi)


def _tobi(i: int, *tists: int) -> Tobi:
    versions = {}
    for tist in tists:
        state = _digest(f"{i}@{tist}")
        refs = tuple(Refipo(url, "Application/pdf") for url in urls(i))
        title = "The title of a paper about economics, of some length"
        versions[state] = TobiVersion(state, 1500, _digest(f"text {state}"), "ReDIF-Paper 1.0", title, refs)
    path = f"RePEc/a{i // _ARCHIVE:05d}/wpaper/x.rdf"
    notes = {tist: TobiNote(tist + 1, "new", path, i % _ARCHIVE, "utf-8") for tist in tists}
    return Tobi(handle(i), handle(i), History(tists, tuple(versions)), versions, notes, stamp_of(i))


def _digest(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()
