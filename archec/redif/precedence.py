"""Where a template's file is in RePEc, and which of several templates with one handle wins: pure functions."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from archec.ids import archive_of, series_of

CORE = "all"
"""The directory of the core archive, which has templates of all archives."""
_SERIES = re.compile(r"[a-z0-9]{6}")


class Place(NamedTuple):
    """The place of a file in RePEc: ``RePEc/aaa/ssssss/1.rdf`` is ``Place("aaa", ("ssssss",), "1.rdf")``.

    ``archive`` is in lower case, ``""`` if the path names none. ``directory`` are the components between the archive
    and the file name, as written. ``name`` is ``""`` for a directory.
    """

    archive: str
    directory: tuple[str, ...]
    name: str


def place(path: str) -> Place:
    """The place of a relative path; a path that ends in ``/`` is a directory.

    RePEc begins after the first component that is ``RePEc`` in any case, alone or followed by ``-``, ``_`` or ``.``
    (after the last of several such components in a row). Without one, it begins at the first component of exactly
    three letters or digits. If there is none either, the place has no archive.
    """
    directory, _, name = path.rpartition("/")
    archive, below = _split(directory)
    return Place(archive, below, name)


def below_root(path: str) -> str:
    """A path relative to the root of RePEc, with its archive in lower case: the same wherever that root is.

    The path of a directory ends in ``/``. Bytes that are not UTF-8 become escapes.
    """
    archive, below, name = place(path)
    parts = [archive, *below, name] if archive else [*below, name]
    return "/".join(parts).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_below_root(path: str) -> bool:
    """Whether a path has a directory ``RePEc``, so that its archive is known for certain."""
    return any(map(_is_root, path.split("/")[:-1]))


def own(handle_id: str, path: str) -> bool:
    """Whether a file is in the directory of the archive and the series of a normalised handle.

    The template of an archive or a series may be anywhere below the directory of its archive, that of an item below
    the directory of its series. Case does not matter.
    """
    archive = archive_of(handle_id)
    there, below = _split(path.rpartition("/")[0])
    if not archive or there != archive:
        return False
    if handle_id.count(":") < 3:
        return True
    return bool(below) and below[0].lower() == series_of(handle_id)


def standing(handle: str, handle_id: str, path: str) -> int:
    """The claim of a template to a handle, the first criterion of :func:`rank`.

    2 if the raw ``handle`` is well-formed (it differs from its id at most in case), and 1 if the file is in the
    directory of its archive and series (:func:`own`).
    """
    return 2 * (handle.lower() == handle_id.lower()) + own(handle_id, path)


def rank(standing: int, path: bytes, member: int, number: int) -> tuple[int, bytes, int, int]:
    """The key by which templates of one handle are compared: the greatest wins (design, section 4).

    The ``standing`` is followed by the greatest path in byte order, the last ``member`` of a tarball with this path,
    and the last template of the file by its ``number``. The order in which a tarball happens to list its files never
    counts.
    """
    return standing, path, member, number


def misplaced(handle_id: str, path: str) -> str:
    """The directory (``aaa/`` or ``aaa/ssssss/``) that shows that a file is in the wrong place for its handle.

    ``""`` if the file is in its place, or if the path does not show its place. This is for files anywhere on disk,
    where any directory may have three letters; :func:`own` judges paths of a data set, which begin in RePEc. The
    directories closest to the file count: those after the last directory ``RePEc``; without one, the two around the
    file if they look like ``aaa/ssssss`` and one of them is the handle's (``tmp/papers`` looks like that, too). A path
    with the directories of the handle's archive and series anywhere is right.
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
    if not there or not _is_code(there[0]) or there[0] == CORE:
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
