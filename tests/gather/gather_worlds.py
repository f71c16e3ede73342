"""Random small worlds: data sets as archives publish them, and what happens to them; an oracle without archec's code.

The oracle says what mi must be, from the rules of design section 4 alone.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from gather_support import Member, tarball

CODES = ("aaa", "bbb", "ccc")
HANDLES = (
    *(f"RePEc:{code}{rest}" for code in CODES for rest in ("", ":sss", ":sss:1", ":sss:2", ":ttt:1")),
    "loose:1",
)
SPOILT = (b"", b"<!DOCTYPE html><html><body>Not found</body></html>\n", b"%PDF-1.4\n\0\0\0\n", b"\n \n")
DIRECTORIES = ("", "/sss", "/sss/sub")
"""Directories of an archive in whose place there may be a link."""
PLACES = ("arch.rdf", "seri.redif", "sss/1.rdf", "sss/2.redif", "ttt/1.rdf", "sss/sub/3.rdf")
POINTS = (
    *("store.mid-rename", "store.after-rename", "store.after-fsync-dir", "journal.after-append"),
    *("catalogue.before-write", "catalogue.after-write"),
)
LINK = -1
"""In place of the number of spoilt bytes: a symbolic link."""


@dataclass(frozen=True)
class Template:
    """One template: ``shout`` writes its handle in capitals, which is the same handle; ``markup`` puts a tag behind it,
    which is the same handle, malformed."""

    handle: str
    version: int
    shout: bool = False
    markup: bool = False

    @property
    def text(self) -> str:
        handle = (self.handle.upper() if self.shout else self.handle) + ("<br />" if self.markup else "")
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

    @property
    def place(self) -> str:
        return self.path.partition("/")[2]

    @property
    def is_directory(self) -> bool:
        """Whether it is a link in place of a directory."""
        return not self.path.endswith((".rdf", ".redif"))


@dataclass(frozen=True)
class DataSet:
    """What a tarball holds: the directories that are there, and the files, in the order of its members. One that is
    ``cut`` ends within the header behind so many of its files."""

    day: int
    directories: frozenset[str]
    files: tuple[File, ...]
    complete: bool = False
    cut: int | None = None

    @property
    def tist(self) -> int:
        return int(datetime(2001, 1, self.day, tzinfo=timezone.utc).timestamp())


class Act(NamedTuple):
    """Something that is done with a data set, by its number: ``gather``, ``refused`` (a damaged one is gathered),
    ``salvage``, ``retract``, ``undo``; ``kill``: a gathering is killed at the ``hits``-th hit of a fail point, and
    resumed if ``resume``, else abandoned; ``kill-retract``: a retraction, or its undoing, is killed so, and
    repeated."""

    what: str
    number: int
    point: str = ""
    hits: int = 0
    resume: bool = False


# -- the oracle ---------------------------------------------------------------------------------------


def oracle(data_sets: Sequence[DataSet]) -> dict[str, dict[int, str | None]]:
    """mi where these data sets count, whatever the order in which they came. Those that are cut were salvaged."""
    days = sorted({one.tist for one in data_sets})
    speaking = {}
    for day in days:
        there = [one for one in data_sets if one.tist == day]
        speaking[day] = [one for one in there if one.cut is None] or there
    found = {handle: history(handle, speaking) for handle in HANDLES}
    return {handle: states for handle, states in found.items() if states}


def history(handle: str, speaking: dict[int, list[DataSet]]) -> dict[int, str | None]:
    """The states of one handle, by the date from which on they are true."""
    return told(handle, speaking)[0]


def told(
    handle: str, speaking: dict[int, list[DataSet]], waiting: Collection[tuple[str, int]] = ()
) -> tuple[dict[int, str | None], str]:
    """The states of one handle, and the place where it was seen last. Losses (handle, date) that are ``waiting`` for a
    decision are none."""
    states: dict[int, str | None] = {}
    text: str | None = None
    place, last = "", Copy("", "", good=False)
    before: list[DataSet] = []
    for day, there in speaking.items():
        copies = [(one, copy) for one in there if (copy := winner(one, handle)) is not None]
        believed = [
            copy
            for one, copy in copies
            if text is None or copy.place == place or copy.rank(handle) > last.rank(handle) or not may_be_at(one, place)
        ]
        if believed:
            last = max(believed, key=lambda copy: (copy.good, copy.sha256, copy.place))
            now, place = last.sha256, last.place
        elif text is None or copies or (handle, day) in waiting:
            now = text
        elif any(is_absent(one, handle, place, before) for one in there):
            now = None
        else:
            now = text
        if now != text:
            states[day] = text = now
        if any(one.cut is None for one in there):
            before = [one for one in there if one.cut is None]
    return states, place


def guarded(data_sets: Sequence[DataSet], accepted: Sequence[bool]) -> dict[str, dict[int, str | None]]:
    """mi where these whole data sets came by date, each of another one, and the losses that the guard held back were
    accepted or not."""
    waiting: set[tuple[str, int]] = set()
    speaking: dict[int, list[DataSet]] = {}
    for one, accept in zip(data_sets, accepted, strict=True):
        before = {handle: told(handle, speaking, waiting) for handle in HANDLES}
        held = {handle: place for handle, (states, place) in before.items() if states and [*states.values()][-1]}
        speaking[one.tist] = [one]
        lost = {handle for handle in held if told(handle, speaking, waiting)[0].get(one.tist, "") is None}
        groups = ({handle: handle.split(":")[1] for handle in held if handle[:6] == "RePEc:"}, {
            handle: place.split("/")[0] for handle, place in held.items()
        })  # fmt: skip
        back = {
            handle for group in groups for handle in lost & group.keys()
            if too_many(*(sum(group.get(other) == group[handle] for other in some) for some in (lost, held)))
        }  # fmt: skip
        back = set() if accept else back
        for handle in lost - back:
            shown = max(day for day, (there,) in speaking.items() if winner(there, handle) is not None)
            waiting -= {(handle, day) for day in speaking if day > shown}
        waiting |= {(handle, one.tist) for handle in back}
    found = {handle: told(handle, speaking, waiting)[0] for handle in HANDLES}
    return {handle: states for handle, states in found.items() if states}


def too_many(losses: int, held: int) -> bool:
    return held >= 3 and losses > held / 2


class Copy(NamedTuple):
    sha256: str
    place: str
    good: bool

    def rank(self, handle: str) -> tuple[bool, bool, str]:
        return self.good, is_own(handle, self.place), self.place


def visible(one: DataSet) -> list[File]:
    """The files that can be seen: a tarball may hold a path twice, and then the later one counts."""
    files = one.files if one.cut is None else one.files[: one.cut]
    return list({file.path: file for file in files}.values())


def winner(one: DataSet, handle: str) -> Copy | None:
    """The copy that counts: a good handle before a malformed one, in its own directory before elsewhere, then by path,
    then the last in its file."""
    best: tuple[tuple[bool, bool, str, int], Copy] | None = None
    for file in visible(one):
        if file.spoilt is None:
            for number, item in enumerate(file.templates):
                copy = Copy(hashlib.sha256(item.text.encode()).hexdigest(), file.place, not item.markup)
                rank = (*copy.rank(handle), number)
                if item.handle == handle and (best is None or rank > best[0]):
                    best = rank, copy
    return best[1] if best is not None else None


def is_own(handle: str, place: str) -> bool:
    parts = handle.split(":")
    if parts[0] != "RePEc":
        return False
    folders = place.split("/")[:-1]
    return folders[0] == parts[1] and (len(parts) < 4 or (len(folders) > 1 and folders[1] == parts[2]))


def archives(one: DataSet) -> set[str]:
    """The archives' directories that were listed to their end."""
    if one.cut is not None:
        return set()
    there = {file.place.split("/")[0] for file in one.files if "/" in file.place} | set(one.directories)
    return (there | ({*CODES, "all"} if one.complete else set())) - unreadable(one).keys()


def unreadable(one: DataSet) -> dict[str, str]:
    """The files that are there and cannot be read, with what is known of their contents."""
    if one.cut is not None:
        return {}
    return {
        file.place: "a link" if file.spoilt == LINK else hashlib.sha256(file.data).hexdigest()
        for file in visible(one)
        if file.spoilt is not None
    }


def may_be_at(one: DataSet, place: str) -> bool:
    """Whether a template could be at its place although the data set does not show it there."""
    parts = place.split("/")
    above = {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return parts[0] not in archives(one) or bool(above & unreadable(one).keys())


def is_absent(one: DataSet, handle: str, place: str, before: Iterable[DataSet]) -> bool:
    """Design, section 4: lost by its place, its home, and no unreadable file that is new or has changed."""
    if may_be_at(one, place):
        return False
    there = place.split("/")[0]
    parts = handle.split(":")
    if parts[0] != "RePEc":
        home = there
    elif len(parts) < 4 and there == "all":
        home = "all"
    else:
        home = parts[1]
    if home not in archives(one):
        return False
    known = [unreadable(earlier) for earlier in before]
    for file, contents in unreadable(one).items():
        is_old = known and all(earlier.get(file) == contents for earlier in known)
        if file.split("/")[0] in (there, home) and not is_old:
            return False
    return True


# -- random worlds ------------------------------------------------------------------------------------


class World(NamedTuple):
    """Data sets, and what is done with them in turn."""

    sets: list[DataSet]
    acts: list[Act]


def some_path(chance: random.Random) -> str:
    return f"RePEc/{chance.choice((*CODES, 'all'))}/{chance.choice(PLACES)}"


def some_file(chance: random.Random) -> File:
    path = some_path(chance)
    code = path.split("/")[1]
    if chance.random() < 0.05:
        return File(f"RePEc/{code}{chance.choice(DIRECTORIES)}", spoilt=LINK)
    if chance.random() < 0.12:
        return File(path, spoilt=chance.choice((LINK, *range(len(SPOILT)))))
    own = [h for h in HANDLES if h.split(":")[1] == code] or list(HANDLES)
    texts = []
    for _ in range(chance.randint(1, 4)):
        handle = chance.choice(own if chance.random() < 0.75 else HANDLES)
        texts.append(Template(handle, chance.randrange(3), chance.random() < 0.5, chance.random() < 0.15))
    return File(path, tuple(texts))


def some_set(chance: random.Random, before: list[DataSet]) -> DataSet:
    """A data set: a new one, or what has become of an earlier one."""
    day = chance.randint(1, 5)
    if before and chance.random() < 0.7:
        files = list(chance.choice(before).files)
        for _ in range(chance.randint(0, 3)):
            change(files, chance)
        chance.shuffle(files)
    else:
        files = [some_file(chance) for _ in range(chance.randint(0, 6))]
    extra = frozenset(code for code in (*CODES, "all") if chance.random() < 0.25)
    cut = chance.randint(0, len(files)) if chance.random() < 0.15 else None
    return DataSet(day, extra, tuple(files), chance.random() < 0.25, cut)


def change(files: list[File], chance: random.Random) -> None:
    """A file goes, comes, is spoilt, moves, or loses a template."""
    if not files or chance.random() < 0.2:
        files.append(some_file(chance))
        return
    number = chance.randrange(len(files))
    file, what = files[number], chance.randrange(5)
    if what == 0 or file.is_directory:
        del files[number]
    elif what == 1:
        files[number] = File(file.path, spoilt=chance.choice((LINK, *range(len(SPOILT)))))
    elif what == 2:
        files[number] = replace(file, path=some_path(chance))
    elif what == 3 and len(file.templates) > 1:
        files[number] = replace(file, templates=file.templates[1:])
    else:
        files[number] = some_file(chance)


def some_world(chance: random.Random) -> World:
    sets: list[DataSet] = []
    for _ in range(chance.randint(1, 5)):
        sets.append(some_set(chance, sets))
    return World(sets, some_acts(chance, sets))


def some_acts(chance: random.Random, sets: Sequence[DataSet], kills: float = 0.15) -> list[Act]:
    """The data sets in any order, some again, some killed on the way, some retracted and believed again."""
    order = list(range(len(sets)))
    chance.shuffle(order)
    order += [chance.randrange(len(sets)) for _ in range(chance.randint(0, 2))]
    acts: list[Act] = []
    for number in order:
        if sets[number].cut is not None:
            acts.append(Act("refused" if chance.random() < 0.2 else "salvage", number))
            continue
        if chance.random() < kills:
            acts.append(Act("kill", number, chance.choice(POINTS), chance.randint(1, 6), chance.random() < 0.5))
            if not acts[-1].resume and chance.random() < 0.5:
                later = chance.randint(0, len(acts))
                acts.insert(later, Act("gather", chance.choice(order)))
        acts.append(Act("gather", number))
        if chance.random() < 0.2:
            acts.insert(chance.randint(len(acts) - 1, len(acts)), Act("retract", chance.choice(order)))
        if chance.random() < 0.2:
            acts.append(Act("undo", chance.choice(order)))
        if chance.random() < kills:
            acts.append(Act("kill-retract", chance.choice(order), chance.choice(POINTS), chance.randint(1, 3)))
    return [act for act in acts if act.what != "gather" or sets[act.number].cut is None]


def write(data_set: DataSet, folder: Path, name: str) -> Path:
    """The data set as a tarball whose name tells its date; no two have the same bytes."""
    members = [Member("RePEc/", None), *(Member(f"RePEc/{code}/", None) for code in sorted(data_set.directories))]
    kept = data_set.files if data_set.cut is None else data_set.files[: data_set.cut]
    for file in kept:
        members.append(Member(file.path, file.data if file.spoilt != LINK else "/elsewhere"))
    members = [member._replace(mtime=1_000_000_000 + int(name)) for member in members]
    path = folder / f"RePEc_2001-01-{data_set.day:02d}_{name}.tar"
    if data_set.cut is None:
        return tarball(path, members)
    tarball(path, [*members, Member("RePEc/zzz/behind.rdf", b"Template-Type: x\n" * 100)])
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"RePEc/zzz/behind.rdf") + 600])
    return path
