"""Random small worlds: data sets as archives publish them, and an oracle that knows nothing of archec.

The oracle says what mi must be, from the rules of design section 4 alone.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from gather_support import Member, tarball
from hypothesis import strategies as st

CODES = ("aaa", "bbb", "ccc")
HANDLES = tuple(
    f"RePEc:{code}{rest}" for code in ("aaa", "bbb", "ccc") for rest in ("", ":sss", ":sss:1", ":sss:2", ":ttt:1")
)
SPOILT = (b"", b"<!DOCTYPE html><html><body>Not found</body></html>\n", b"%PDF-1.4\n\0\0\0\n", b"\n \n")
PLACES = ("arch.rdf", "seri.redif", "sss/1.rdf", "sss/2.redif", "ttt/1.rdf", "sss/sub/3.rdf")


@dataclass(frozen=True)
class Template:
    """One template: ``shout`` writes its handle in capitals, which is the same handle."""

    handle: str
    version: int
    shout: bool = False

    @property
    def text(self) -> str:
        handle = self.handle.upper() if self.shout else self.handle
        return f"Template-Type: ReDIF-Paper 1.0\nTitle: Version {self.version}\nHandle: {handle}\n"


@dataclass(frozen=True)
class File:
    """A file of templates; a spoilt one holds no template and is no evidence of anything."""

    path: str
    templates: tuple[Template, ...] = ()
    spoilt: int | None = None

    @property
    def data(self) -> bytes:
        if self.spoilt is not None:
            return SPOILT[self.spoilt]
        return "\n# a remark\n\n".join(t.text for t in self.templates).encode()


@dataclass(frozen=True)
class DataSet:
    """What a tarball holds: the directories that are there, and the files, in the order of its members."""

    day: int
    directories: frozenset[str]
    files: tuple[File, ...]
    complete: bool = False

    @property
    def tist(self) -> int:
        return int(datetime(2001, 1, self.day, tzinfo=timezone.utc).timestamp())


# -- the oracle ---------------------------------------------------------------------------------------


def oracle(data_sets: Sequence[DataSet]) -> dict[str, dict[int, str | None]]:
    """mi after all of these, whatever their order: the winner of each data set, or its absence."""
    told: dict[str, dict[int, str | None]] = {}
    for data_set in data_sets:
        present = winners(data_set)
        for handle in HANDLES:
            seen = told.setdefault(handle, {})
            if handle in present:
                seen[data_set.tist] = hashlib.sha256(present[handle].encode()).hexdigest()
            elif is_covered(handle, data_set) and data_set.tist not in seen:
                seen[data_set.tist] = None
    return {handle: history for handle, seen in told.items() if (history := changes(seen))}


def changes(seen: dict[int, str | None]) -> dict[int, str | None]:
    state: str | None = None
    history: dict[int, str | None] = {}
    for tist in sorted(seen):
        if seen[tist] != state:
            history[tist] = state = seen[tist]
    return history


def last_files(data_set: DataSet) -> dict[str, File]:
    """A tarball may hold a path twice: the later one counts."""
    return {file.path: file for file in data_set.files}


def winners(data_set: DataSet) -> dict[str, str]:
    """The text of each handle: in its own directory before elsewhere, then by path, then the last in its file."""
    best: dict[str, tuple[bool, bytes, int, str]] = {}
    for file in last_files(data_set).values():
        if file.spoilt is not None:
            continue
        for number, item in enumerate(file.templates):
            rank = (is_own(item.handle, file.path), file.path.encode(), number, item.text)
            if item.handle not in best or rank[:3] > best[item.handle][:3]:
                best[item.handle] = rank
    return {handle: rank[3] for handle, rank in best.items()}


def is_own(handle: str, path: str) -> bool:
    code, *series = handle.split(":")[1:]
    parts = path.split("/")[1:-1]
    return parts[0] == code and (len(series) < 2 or (len(parts) > 1 and parts[1] == series[0]))


def is_covered(handle: str, data_set: DataSet) -> bool:
    code, *rest = handle.split(":")[1:]
    whole = wholly_read(data_set)
    if code in whole:
        return whole[code] or (len(rest) < 2 and whole.get("all", False))
    return data_set.complete or (len(rest) < 2 and whole.get("all", False))


def wholly_read(data_set: DataSet) -> dict[str, bool]:
    """The archives whose directory is there: whether every file of it could be read."""
    files = last_files(data_set).values()
    found = dict.fromkeys(data_set.directories, True)
    for file in files:
        code = file.path.split("/")[1]
        found[code] = found.get(code, True) and file.spoilt is None
    return found


# -- random worlds ------------------------------------------------------------------------------------

templates = st.builds(Template, st.sampled_from(HANDLES), st.integers(0, 2), st.booleans())


@st.composite
def files(draw: st.DrawFn) -> File:
    code = draw(st.sampled_from((*CODES, "all")))
    path = f"RePEc/{code}/{draw(st.sampled_from(PLACES))}"
    if draw(st.integers(0, 7)) == 0:
        return File(path, spoilt=draw(st.integers(0, len(SPOILT) - 1)))
    own = [h for h in HANDLES if h.split(":")[1] == code] or list(HANDLES)
    mine = st.builds(Template, st.sampled_from(own), st.integers(0, 2), st.booleans())
    return File(path, tuple(draw(st.lists(st.one_of(mine, mine, mine, templates), min_size=1, max_size=4))))


@st.composite
def data_sets(draw: st.DrawFn, days: int = 4) -> DataSet:
    members = draw(st.lists(files(), max_size=6))
    extra = draw(st.sets(st.sampled_from((*CODES, "all")), max_size=2))
    return DataSet(draw(st.integers(1, days)), frozenset(extra), tuple(members), draw(st.integers(0, 3)) == 0)


@st.composite
def worlds(draw: st.DrawFn) -> list[DataSet]:
    """Several data sets; those of one date agree about what each handle says."""
    sets = draw(st.lists(data_sets(), min_size=1, max_size=4))
    days = [one.day for one in sets]
    return [agreed(one) if days.count(one.day) > 1 else one for one in sets]


def agreed(one: DataSet) -> DataSet:
    """The data set with templates that say the same wherever their handle stands at this date."""

    def same(item: Template) -> Template:
        chance = random.Random(f"{one.day} {item.handle}")
        return Template(item.handle, chance.randrange(3), chance.random() < 0.3)

    return replace(one, files=tuple(replace(f, templates=tuple(map(same, f.templates))) for f in one.files))


def write(data_set: DataSet, folder: Path, name: str) -> Path:
    """The data set as a tarball whose name tells its date."""
    members = [Member("RePEc/", None), *(Member(f"RePEc/{code}/", None) for code in sorted(data_set.directories))]
    members += [Member(file.path, file.data) for file in data_set.files]
    return tarball(folder / f"RePEc_2001-01-{data_set.day:02d}_{name}.tar", members)
