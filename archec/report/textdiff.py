"""What changed in a template between two tists."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from archec.archive.lookup import Held, held_at
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi
from archec.errors import CorruptArchive, NotHeld, UsageError
from archec.store.layout import Layout
from archec.tist import iso

__all__ = ["TextDiff", "text_diff"]


@dataclass(frozen=True, slots=True)
class TextDiff:
    """Two states of a template, and how one becomes the other: unified diff lines without line ends."""

    id: str
    before: int
    after: int
    lines: tuple[str, ...]


def text_diff(
    layout: Layout, catalogue: Catalogue, tobi: Obi, from_when: int | None = None, to_when: int | None = None
) -> TextDiff:
    """The difference between the states in force at two times; by default the last two that were noted.

    Where only ``from_when`` is given, it is compared with the newest; where only ``to_when`` is, with the one noted
    before it. Raises :class:`NotHeld` where there are no such two, :class:`UsageError` where they are in reverse.
    """
    if from_when is not None and to_when is not None and from_when > to_when:
        raise UsageError(f"{iso(from_when)} is after {iso(to_when)}: --from comes before --to")
    noted = tobi.history.noted
    if not noted:
        raise NotHeld(f"{tobi.id}: was never held")
    new = held_at(layout, catalogue, tobi, noted[-1] if to_when is None else to_when)
    if from_when is None:
        earlier = [tist for tist in noted if tist < new.tist]
        if not earlier:
            raise NotHeld(f"{tobi.id}: nothing to compare with: it was not held before {iso(new.tist)} ({new.tist})")
        from_when = earlier[-1]
    old = held_at(layout, catalogue, tobi, from_when)
    if old.tist > new.tist:
        raise UsageError(f"{iso(old.tist)} is after {iso(new.tist)}: --from comes before --to")
    names = (f"{tobi.id} {iso(old.tist)}", f"{tobi.id} {iso(new.tist)}")
    lines = difflib.unified_diff(_lines(layout, old), _lines(layout, new), *names, lineterm="")
    return TextDiff(tobi.id, old.tist, new.tist, tuple(lines))


def _lines(layout: Layout, held: Held) -> list[str]:
    with held.open(layout) as file:
        data = file.read()
    try:
        return data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptArchive(
            f"{held.located.path}: is not UTF-8, as a template is", hint="archec verify looks at all files"
        ) from error
