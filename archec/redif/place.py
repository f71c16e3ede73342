"""Where in RePEc a file lies, and whether that is where its handle belongs: pure functions."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from archec.ids import archive_of, series_of

__all__ = ["Place", "misplaced", "own", "place"]

_CORE = "all"
"""The core archive's folder, which holds templates of all archives."""
_SERIES = re.compile(r"[a-z0-9]{6}")


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


def misplaced(handle_id: str, path: str) -> str:
    """The folder, ``aaa/`` or ``aaa/ssssss/``, by which a file anywhere on a disk lies in another place than its
    handle says; ``""`` where it does not, or nobody can tell.

    Not the rule of a data set (:func:`own`), whose paths begin in RePEc: here any folder may have three letters.
    What counts is what is nearest to the file: below a folder ``RePEc``, the folders after the last of these; else
    the two that hold the file, if they look like ``aaa/ssssss`` and one of them is the handle's (``tmp/papers`` looks
    like that, too). Where an archive's folder and its series' in it agree with the handle anywhere on the path, all
    is well.
    """
    archive, series, item = archive_of(handle_id), series_of(handle_id), handle_id.count(":") > 2
    folders = [part.lower() for part in path.split("/")[:-1] if part not in ("", ".")]
    pairs = pairwise([*folders, ""])
    if not archive or any(one == archive and (not item or below == series) for one, below in pairs):
        return ""
    root = max((i for i, part in enumerate(folders) if _is_root(part)), default=-1)
    there = folders[root + 1 : root + 3] if root >= 0 else folders[-2:]
    if root < 0 and not (
        len(there) == 2 and _SERIES.fullmatch(there[1]) and (there[0] == archive or there[1] == series)
    ):
        return ""
    if not there or not _is_code(there[0]) or there[0] == _CORE:
        return ""
    return "".join(f"{part}/" for part in (there if there[0] == archive else there[:1]))


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
