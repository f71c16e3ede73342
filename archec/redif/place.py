"""Where in RePEc a file lies, and whether that is where its handle belongs: pure functions."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from archec.ids import archive_of, series_of

__all__ = ["Place", "own", "place"]


class Place(NamedTuple):
    """``RePEc/aaa/ssssss/1.rdf`` is ``Place("aaa", ("ssssss",), "1.rdf")``.

    ``archive`` is in lower case, ``""`` where the path names none; ``directory`` are the components
    between it and the file's name, as they are written; ``name`` is ``""`` for a directory.
    """

    archive: str
    directory: tuple[str, ...]
    name: str


def place(path: str) -> Place:
    """Where in RePEc a relative path lies; a path that ends in ``/`` is a directory.

    RePEc begins after the leading component that is ``RePEc`` in any case, or begins with it and
    goes on with ``-``, ``_`` or ``.`` (the last of them, where several follow each other); else
    with the first component of exactly three letters or digits; else there is no archive.
    """
    directory, _, name = path.rpartition("/")
    archive, below = _split(directory)
    return Place(archive, below, name)


def own(handle_id: str, path: str) -> bool:
    """Whether a file lies in the directory of the archive and the series of its handle.

    ``handle_id`` is a normalised handle. An archive's or a series' template may lie anywhere below
    its archive's directory, an item's below its series' directory. Case does not matter.
    """
    archive = archive_of(handle_id)
    there, below = _split(path.rpartition("/")[0])
    if not archive or there != archive:
        return False
    if handle_id.count(":") < 3:
        return True
    return bool(below) and below[0].lower() == series_of(handle_id)


@lru_cache(maxsize=1024)
def _split(directory: str) -> tuple[str, tuple[str, ...]]:
    parts = [part for part in directory.split("/") if part not in ("", ".")]
    begin = next((i for i, part in enumerate(parts) if _is_root(part)), None)
    if begin is not None:
        while begin < len(parts) and _is_root(parts[begin]):
            begin += 1
    else:
        begin = next((i for i, part in enumerate(parts) if _is_code(part)), None)
    if begin is None:
        return "", tuple(parts)
    return (parts[begin].lower(), tuple(parts[begin + 1 :])) if begin < len(parts) else ("", ())


def _is_root(part: str) -> bool:
    return part[:5].lower() == "repec" and (len(part) == 5 or part[5] in "-_.")


def _is_code(part: str) -> bool:
    return len(part) == 3 and part.isascii() and part.isalnum()
