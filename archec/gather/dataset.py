"""Data sets: the input of a run and its tist (design, section 4).

A command that is given several reads them in time order and, if it is resumed, skips those already read.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from archec.archive.opening import LastRun
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import DataSet
from archec.config import Config
from archec.errors import (
    BadName,
    DamagedDataSet,
    DataSetError,
    RetractedDataSet,
    UndatedDataSet,
    UsageError,
    hint_of,
    unreadable_directory,
)
from archec.gather.data_set_date import date_of
from archec.gather.template_texts import Reading
from archec.progress import Meter
from archec.tist import MAX_TIST, iso, stamp
from archec.units import human_duration

_CHUNK = 1 << 20
_TARBALL = re.compile(r".*\.(?:tar(?:\.(?:gz|zst|xz|bz2))?|t(?:gz|zst|xz|bz2))", re.I)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A data set to read: a ``directory`` or a ``tarball``. ``tist`` is 0 if it is only determined by the times of the
    members. ``sha256`` is that of a tarball's bytes."""

    path: Path
    form: str
    tist: int
    sha256: str = ""

    @property
    def source(self) -> str:
        """The path as shown in reports and journals, which are UTF-8."""
        return printable(self.path)

    @property
    def name(self) -> str:
        """The last part of the path, in the same form."""
        return printable(Path(self.path.name))


def printable(path: Path) -> str:
    """A path as text, with escapes for bytes that are not UTF-8."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def choose(config: Config, file: Path | None, as_of: int | None, run: int) -> Chosen:
    """The data set of a run at software tist ``run``: ``file`` if given, else ReDIF_directory.

    Its date is 0 if :func:`date_of` needs its members. Raises DataSetError if it is missing, UsageError for a date in
    the future, BadName for an ambiguous date in the name of ``file``.
    """
    path = config.data_path if file is None else file.absolute()
    if not path.exists():
        if file is not None:
            raise DataSetError(f"{path}: no such data set", hint="give a tarball or a directory that exists with -f")
        where = f"{config.place('ReDIF_directory')}: {path}"
        raise DataSetError(
            f"{where}: no such data set", hint="check that it is mounted; put a data set there, or a link to one"
        )
    form = "directory" if path.is_dir() else "tarball"
    tist, _ = date_of("" if file is None else path.name, as_of, now=run if form == "directory" else 0)
    if tist <= 0 and as_of is not None:
        raise UsageError(f"{path}: {iso(tist)} is not a valid date of a data set", hint="give a later one with --as-of")
    if tist > run:
        raise UsageError(f"{path}: its date {iso(tist)} is in the future", hint="give another one with --as-of")
    return Chosen(path, form, tist)


def hashed(chosen: Chosen, meter: Meter) -> Chosen:
    """The data set with its sha256, for which a tarball is read once. Raises DataSetError if it cannot be read."""
    if chosen.form != "tarball":
        return chosen
    if not chosen.path.is_file():  # reading a pipe or a device may never end
        hint = "a pipe is to be written to a file first" if chosen.path.is_fifo() else ""
        raise DataSetError(f"{chosen.path} is neither a directory nor a tarball", hint=hint)
    running, done = sha256(), 0
    try:
        with chosen.path.open("rb", buffering=0) as file:
            meter.phase("checksum of the tarball", os.fstat(file.fileno()).st_size or None)
            while data := file.read(_CHUNK):
                running.update(data)
                done += len(data)
                meter.at(done)
    except OSError as error:
        raise DataSetError(f"{chosen.path}: {error.strerror}", hint=hint_of(error, chosen.path)) from error
    return replace(chosen, sha256=running.hexdigest())


def refuse_nothing(chosen: Chosen, files: int, catalogue: Catalogue) -> None:
    """Raises DataSetError if a directory has no files at all and the archive holds tobis: a failed mount or copy.

    Such a run must not count as successful. An empty tarball was made deliberately, and replays may come in any order:
    it covers what it contains.
    """
    if not files and chosen.form == "directory" and catalogue.counts().tobis_held:
        raise DataSetError(
            f"{chosen.path}: contains no template files, but the archive holds templates",
            hint="check that it is mounted and was copied completely; nothing counts as lost",
        )


def refuse_damaged(chosen: Chosen, reading: Reading, *, salvage: bool) -> None:
    """Raises DamagedDataSet if a data set is not whole, unless it is salvaged."""
    if not (reading.whole or salvage):
        what = reading.damage.message if reading.damage is not None else "it ends early"
        raise DamagedDataSet(
            f"{chosen.path}: {what}: nothing was noted from it",
            hint="get an intact copy; 'archec gather --salvage' takes what can be read",
        )


def refuse_retracted(chosen: Chosen, catalogue: Catalogue) -> None:
    """Raises RetractedDataSet if this data set was retracted."""
    for item in catalogue.data_sets() if chosen.sha256 else ():
        if item.retracted and (item.tist, item.sha256) == (chosen.tist, chosen.sha256):
            raise RetractedDataSet(
                f"{chosen.path}: this data set was retracted: {item.retracted}",
                hint=f"'archec retract {item.run} --undo' reverses that",
            )


def dated_by_members(chosen: Chosen, newest: int, *, whole: bool) -> Chosen:
    """The data set with the date of its ``newest`` member. Raises DataSetError if that is not its date."""
    tist, _ = date_of(newest=newest, whole=whole)
    if tist:
        return replace(chosen, tist=tist)
    if whole:
        what = "neither its name nor its members carry a date"
        raise DataSetError(f"{chosen.path}: {what}", hint="give one with --as-of")
    raise UndatedDataSet(
        f"{chosen.path}: is damaged, and its name does not contain its date: nothing was noted from it",
        hint="give its date with --as-of",
    )


def in_order(config: Config, paths: Iterable[Path], as_of: int | None) -> list[Chosen]:
    """The data sets at ``paths``, oldest first; those dated by their members come last.

    A directory with tarballs is replaced by these; any other directory is a data set. Raises, before anything is read,
    an ArchecError if one of them is missing, and BadName with all names that have an ambiguous or invalid date.
    """
    now = stamp()
    chosen: dict[Path, Chosen] = {}
    unclear: list[BadName] = []
    several = [path for one in paths for path in _tarballs_in(one)]
    for path in several:
        try:
            chosen[path.absolute()] = choose(config, path, as_of, now)
        except BadName as error:
            unclear.append(error)
    if unclear and len(several) > 1:
        raise BadName(
            "nothing was read: " + "; ".join(error.message for error in unclear),
            hint="rename these files, or move them away and gather each one separately with --as-of",
        )
    if unclear:
        raise unclear[0]
    return sorted(chosen.values(), key=lambda one: (one.tist or MAX_TIST, one.path))


def _tarballs_in(path: Path) -> Sequence[Path]:
    try:
        names = sorted(one.name for one in path.iterdir() if _TARBALL.fullmatch(one.name)) if path.is_dir() else []
    except OSError as error:
        raise unreadable_directory(path, error) from error
    return [path / name for name in names] or [path]


def still_to_read(
    chosen: Sequence[Chosen], last: LastRun | None, known: Sequence[DataSet], meter: Meter
) -> Iterator[tuple[Chosen, bool]]:
    """The remaining work of a resumed command: the data sets that were not read completely, and whether to resume.

    ``last`` is the last run, ``known`` are the data sets that the archive has read: a tarball is identified by its date
    and its sha256, which is computed if it may be known. Raises UsageError if the run to resume reads something else.
    """
    stopped = last.start.source if last is not None and last.start is not None and last.resumable else ""
    if last is not None and stopped and stopped not in {one.source for one in chosen}:
        raise UsageError(f"the run to resume, {last.journal.tist}, reads {stopped}, which is none of these data sets")
    for one in chosen:
        if one.source == stopped:
            yield one, True
        elif not _is_known(one, known, meter):
            yield one, False


def _is_known(one: Chosen, known: Sequence[DataSet], meter: Meter) -> bool:
    """Whether the archive has read this tarball completely. One dated by its members may have any date."""
    known_as = {item.sha256 for item in known if item.whole and item.sha256 and one.tist in (0, item.tist)}
    try:
        return bool(known_as) and hashed(one, meter).sha256 in known_as
    except DataSetError:
        return False  # reading it reports that


class OverallMeter(Meter):
    """A meter for several data sets in turn: its notes show the time left for all of them."""

    def __init__(self, meter: Meter, sizes: Sequence[int], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._meter, self._clock, self._sizes = meter, clock, sizes
        self._began = clock()
        self._number = 0
        self._reads = False

    def next(self) -> None:
        """The next data set begins."""
        self._number += 1

    def phase(self, name: str, total: int | None) -> None:
        self._reads = name == "reading templates"
        self._meter.phase(f"{name} ({self._number} of {len(self._sizes)})", total)

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        if self._reads:
            read = sum(self._sizes[: self._number - 1]) + min(done, self._sizes[self._number - 1])
            if read:
                left = (self._clock() - self._began) * (sum(self._sizes) - read) / read
                note = f"{note}, all data sets in about {human_duration(left)}".removeprefix(", ")
        self._meter.at(done, note, total)

    def close(self) -> None:
        self._meter.close()
