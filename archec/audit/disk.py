"""The names on disk: every name in the obi store, and those that are in no journal.

Links are not followed. ``quarantine/`` and ``lost+found`` are skipped.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from typing import Literal, NamedTuple

import msgspec

from archec.archive.opening import LastRun, last_run
from archec.audit.expected import key_of
from archec.audit.findings import Finding
from archec.audit.quarantine import QUARANTINE
from archec.catalogue.interface import Catalogue
from archec.errors import ArchecError, BadName, StorageFailed, is_out_of_resources, storage_errors
from archec.redif.problems import shown
from archec.store.durable import is_temp, open_directory
from archec.store.layout import DESCRIPTOR, NAMASTE, RUNS, Directories, Layout, file_name, id_of_name, tist_of_path
from archec.store.lock import LOCK, holder
from archec.store.reader import follow

MOST = 100_000
"""Maximum number of differences of a kind that are reported, so that memory stays flat; the rest is counted."""

_OURS = frozenset({DESCRIPTOR, NAMASTE, LOCK, RUNS, QUARANTINE, "lost+found"})
_THREE = re.compile(r"[0-9]{3}")
_DIGITS = re.compile(r"[0-9]{1,12}")
FAN = re.compile(r"[0-9a-f]{2}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

NameKind = Literal["file", "link", "temp", "other"]


OutOfPlace = Callable[[Finding, str], None]
"""Called with findings outside the directories of obis, and their relative paths on disk."""


class DiskName(NamedTuple):
    """A name in a directory of obis: its tist, its directory (relative), its name, its kind, the mode of a file (-1:
    not requested)."""

    tist: int
    directory: str
    name: str
    kind: NameKind
    mode: int = -1

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"


def walk(layout: Layout, report: OutOfPlace, *, modes: bool = False) -> Iterator[DiskName]:
    """Yields all names at the depth of obis, directory by directory, with the ``modes`` of files if requested. Reports
    names elsewhere.

    A directory that cannot be listed is reported as ``unreadable``, and its contents are skipped.
    """
    with open_directory(layout.root) as root:
        yield from _descend(layout, root, "", 0, report, modes)


def _descend(
    layout: Layout, fd: int, directory: str, depth: int, report: OutOfPlace, modes: bool
) -> Iterator[DiskName]:
    try:
        if depth == layout.depth:
            yield from _places(layout, fd, directory, modes)
            return
        with storage_errors(f"{layout.root}/{directory}"), os.scandir(fd) as entries:
            names = sorted(entry.name for entry in entries)  # at most a few thousand
    except StorageFailed as error:
        report(_unreadable(directory, error), directory)
        return
    for name in names:
        path = f"{directory}/{name}" if directory else name
        if not depth and (name in _OURS or is_temp(name)):
            continue
        try:
            wrong = _misfit(layout, fd, name, path, depth)
            if wrong is not None:
                report(Finding(wrong[0], shown(path), wrong[1]), path)
                continue
            with storage_errors(f"{layout.root}/{path}"):
                inner = os.open(name, _DIRECTORY, dir_fd=fd)
        except StorageFailed as error:
            report(_unreadable(path, error), path)
            continue
        try:
            yield from _descend(layout, inner, path, depth + 1, report, modes)
        finally:
            os.close(inner)


def _unreadable(directory: str, error: StorageFailed) -> Finding:
    if is_out_of_resources(error):
        raise error
    return Finding("unreadable", shown(directory) or ".", f"a directory that cannot be listed: {error.message}")


def _misfit(layout: Layout, fd: int, name: str, path: str, depth: int) -> tuple[str, str] | None:
    """Why a name is not that of a directory of the store; None if it is."""
    pattern = (_THREE, _THREE, _DIGITS, FAN)[depth]
    fits = pattern.fullmatch(name) is not None
    if fits and depth == 2:
        try:
            tist_of_path(path)
        except (BadName, ValueError):
            fits = False
    with storage_errors(f"{layout.root}/{path}"):
        mode = os.lstat(name, dir_fd=fd).st_mode
    if not fits:
        return "unexpected", f"{_kind(mode)} that is not part of the store"
    if not stat.S_ISDIR(mode):
        return "directory-link", f"{_kind(mode)} where a directory of the store should be"
    return None


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a link"
    return "a directory" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "a device, pipe or socket"


def _places(layout: Layout, fd: int, directory: str, modes: bool) -> Iterator[DiskName]:
    tist = tist_of_path("/".join(directory.split("/")[:3]))
    with storage_errors(f"{layout.root}/{directory}"), os.scandir(fd) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_file(follow_symlinks=False):
                kind: NameKind = "temp" if name.startswith(".+") and is_temp(name) else "file"
                yield DiskName(tist, directory, name, kind, entry.stat(follow_symlinks=False).st_mode if modes else -1)
            elif entry.is_symlink():
                yield DiskName(tist, directory, name, "link")
            else:
                yield DiskName(tist, directory, name, "other")


def judge(directories: Directories, path: str) -> tuple[str, str] | None:
    """What is wrong with the link at a relative path: code and message of a finding, or None."""
    try:
        fault = follow(directories, path, id_of_name(path.rpartition("/")[2])).fault
    except StorageFailed as error:
        if is_out_of_resources(error):
            raise
        return "unreadable", error.message
    except ArchecError as error:
        return "link-dangling", error.message
    if fault is None:
        return None
    return "link-escapes" if fault.kind == "escapes" else "link-dangling", fault.message


# -- names in no journal --------------------------------------------------------------------------


class Stopped(NamedTuple):
    """A run that was killed, interrupted or failed, or has not finished, and the tist of its data set."""

    run: int
    data_set: int

    def may_have_left(self, tist: int, *, linked: bool) -> bool:
        """Whether it may have left an obi at this tist. Between the tist of its data set and its own, a run restates
        held contents by hard links."""
        return tist in self or (linked and self.data_set < tist < self.run)


class Journalled(NamedTuple):
    """What journals can name: the ``tists`` of runs and data sets, and the ``stopped`` runs, which may have left obis
    that no journal names."""

    tists: Collection[int]
    stopped: Collection[Stopped]


def known_tists(catalogue: Catalogue | None) -> frozenset[int]:
    """The tists at which the archive has noted obis: those of runs and of data sets."""
    if catalogue is None:
        return frozenset()
    tists = {tist for run in catalogue.runs() for tist in (run.tist, run.data_set)}
    return frozenset(tists | {data_set.tist for data_set in catalogue.data_sets()})


def journalled(layout: Layout, catalogue: Catalogue | None) -> Journalled:
    """What the journals can name as far as the catalogue has followed them."""
    runs = catalogue.runs() if catalogue is not None else ()
    stopped = {Stopped(run.tist, run.data_set) for run in runs if was_stopped(run.state, _resumed(run.report))}
    last = last_run(layout)
    if last is not None and not last.journal.finished:
        stopped.add(_tists_of(last))
    return Journalled(known_tists(catalogue), stopped)


def was_stopped(state: str, resumed: bool) -> bool:
    """Whether a run that ended in this state was stopped at least once, even if it was ``resumed`` later."""
    return resumed or state in ("interrupted", "failed")


class _Ended(msgspec.Struct):
    resumed: bool = False


def _resumed(report: str) -> bool:
    """Whether a run was resumed, according to its report; False if the report is unreadable."""
    try:
        return msgspec.json.decode(report or "{}", type=_Ended).resumed
    except msgspec.MsgspecError:
        return False


def under_way(layout: Layout) -> frozenset[int]:
    """The tists at which an active run may be writing; empty if there is none."""
    who = holder(layout)
    if who is None or not who.is_run:
        return frozenset()
    last = last_run(layout)
    return frozenset(_tists_of(last)) if last is not None else frozenset()


def _tists_of(last: LastRun) -> Stopped:
    """The tists at which the newest run notes obis."""
    return Stopped(last.journal.tist, last.start.data_set if last.start is not None else last.journal.tist)


def unknown_files(
    layout: Layout, keys: Collection[bytes], known: Journalled, passed_over: Collection[int]
) -> Iterator[tuple[Finding, DiskName]]:
    """Walks the store and yields every name whose key is among ``keys``, with a finding that classifies it.

    The tists in ``passed_over`` belong to an active run.
    """
    if not keys:
        return
    with Directories(layout) as directories:
        for place in walk(layout, lambda finding, path: None):
            if place.kind != "temp" and place.tist not in passed_over and key_of(place.path) in keys:
                yield _unknown(layout, directories, place, known), place


def _unknown(layout: Layout, directories: Directories, place: DiskName, known: Journalled) -> Finding:
    path = shown(place.path)
    if place.kind == "other":
        return Finding("unexpected", path, "neither a file nor a link")
    obi = _id_of(layout, place)
    if place.kind == "link":
        wrong = judge(directories, place.path)
        if wrong is not None:
            return Finding(wrong[0], path, f"no journal names it, and it {wrong[1]}")
    if obi is None:
        return Finding("misnamed", path, "no journal names it, and its name is not that of an id in this directory")
    why = "no journal names it"
    if place.tist not in known.tists:
        why = f"{why}, and no run noted anything at {place.tist}"
    else:
        with storage_errors(layout.root / place.path):
            linked = (layout.root / place.path).lstat().st_nlink > 1  # it has another name, too
        if any(stopped.may_have_left(place.tist, linked=linked) for stopped in known.stopped):
            return Finding("orphan", path, why, place.tist, obi)
        why = f"{why}, and no run was stopped that may have left it"
    return Finding("unjournalled", path, f"{why}: {_OLDER}", place.tist, obi)


_OLDER = "was an older copy of the journals restored? Bring back the newer ones, or gather that data set again"


def _id_of(layout: Layout, place: DiskName) -> str | None:
    """The id of a name (empty if the name is truncated), None if it cannot be that of an obi in this directory."""
    if not place.name.isascii():
        return None
    obi = id_of_name(place.name)
    if obi is None:
        cut = len(place.name) > 200 and place.name[-33:-32] == "~"
        return "" if cut else None
    if file_name(obi) != place.name or layout.directory(place.tist, obi) != place.directory:
        return None
    return obi
