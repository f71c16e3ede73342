"""Data sets: what a run reads, and the tist that all of it gets (design, section 4); of several in one command, which
are still to be read and in what order.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from archec.archive.follow import LastRun
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import DataSet
from archec.config import Config
from archec.errors import BadName, DamagedDataSet, DataSetError, RetractedDataSet, UsageError
from archec.gather.reading import Reading
from archec.progress import Meter
from archec.tist import MAX_TIST, date_in_name, iso, stamp
from archec.units import human_duration

_CHUNK = 1 << 20
_TARBALL = re.compile(r".*\.(?:tar(?:\.(?:gz|zst|xz|bz2))?|t(?:gz|zst|xz|bz2))", re.I)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A data set to read: a ``directory`` or a ``tarball``; ``tist`` is 0 where only its members' times can tell,
    ``sha256`` that of a tarball's bytes."""

    path: Path
    form: str
    tist: int
    sha256: str = ""

    @property
    def source(self) -> str:
        """The path fit for reports and journals, which are UTF-8."""
        return printable(self.path)


def printable(path: Path) -> str:
    """A path as text; bytes of it that are not UTF-8 are written as escapes."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def choose(config: Config, file: Path | None, as_of: int | None, run: int) -> Chosen:
    """The data set of a run at software tist ``run``: ``file`` if given, else ReDIF_directory.

    Its date: ``as_of``, else the date in the name of ``file``, else the newest member time of a
    tarball; a plain directory is now. Raises DataSetError where it is missing, UsageError for a
    date that has not come yet, BadName for one in the name that may be several days.
    """
    path = config.data_path if file is None else file.absolute()
    if not path.exists():
        if file is not None:
            raise DataSetError(f"{path}: no such data set")
        where = f"{config.place('ReDIF_directory')}: {path}"
        raise DataSetError(f"{where}: no such data set", hint="is it mounted? Put a data set there, or a link to one")
    form = "directory" if path.is_dir() else "tarball"
    if as_of is not None:
        tist = as_of
    elif file is not None and (named := date_in_name(path.name)) is not None:
        tist = named
    else:
        tist = run if form == "directory" else 0
    if tist <= 0 and as_of is not None:
        raise UsageError(f"{path}: {iso(tist)} is no date of a data set", hint="give a later one with --as-of")
    if tist > run:
        raise UsageError(f"{path}: its date {iso(tist)} has not come yet", hint="give another one with --as-of")
    return Chosen(path, form, tist)


def hashed(chosen: Chosen, meter: Meter) -> Chosen:
    """The data set with its sha256, for which a tarball is read once. Raises DataSetError where it cannot be read."""
    if chosen.form != "tarball":
        return chosen
    running, done = sha256(), 0
    try:
        with chosen.path.open("rb", buffering=0) as file:
            meter.phase("checksum of the tarball", os.fstat(file.fileno()).st_size or None)
            while data := file.read(_CHUNK):
                running.update(data)
                done += len(data)
                meter.at(done)
    except OSError as error:
        raise DataSetError(f"{chosen.path}: {error.strerror}") from error
    return replace(chosen, sha256=running.hexdigest())


def refuse_nothing(chosen: Chosen, files: int, catalogue: Catalogue) -> None:
    """DataSetError where a directory has no files at all and the archive holds tobis: a mount or a copy that failed.

    A run that saw nothing must not be taken for a good one. An empty tarball is what somebody made, and replays may
    come in any order: it covers what it says it covers.
    """
    if not files and chosen.form == "directory" and catalogue.counts().tobis_held:
        raise DataSetError(
            f"{chosen.path}: contains no template files, but the archive holds templates",
            hint="is it mounted, and was it copied whole? Nothing was taken for lost",
        )


def refuse_damaged(chosen: Chosen, reading: Reading, *, salvage: bool) -> None:
    """DamagedDataSet where a data set is not whole, unless what can be read of it is to be taken.

    Then its date must be known otherwise: that of its newest member is not, as members are missing.
    """
    if reading.whole:
        return
    if not salvage:
        what = reading.damage.message if reading.damage is not None else "it ends early"
        raise DamagedDataSet(
            f"{chosen.path}: {what}: nothing of it was noted",
            hint="get a whole copy; 'archec gather --salvage' takes what can be read of it",
        )
    if not chosen.tist:
        raise UsageError(f"{chosen.path}: its name does not say its date", hint="give it with --as-of")


def refuse_retracted(chosen: Chosen, catalogue: Catalogue) -> None:
    """RetractedDataSet where this very data set was retracted."""
    for item in catalogue.data_sets() if chosen.sha256 else ():
        if item.retracted and (item.tist, item.sha256) == (chosen.tist, chosen.sha256):
            raise RetractedDataSet(
                f"{chosen.path}: this data set was retracted: {item.retracted}",
                hint=f"'archec retract {item.run} --undo' makes it count again",
            )


def newest_member(path: Path, newest: int) -> int:
    """The date of a tarball by its newest member; DataSetError where no member has a time."""
    if newest <= 0:
        raise DataSetError(f"{path}: neither its name nor its members carry a date", hint="give one with --as-of")
    return newest


def in_order(config: Config, paths: Iterable[Path], as_of: int | None) -> list[Chosen]:
    """The data sets at ``paths``, oldest first; those whose members tell their date come last.

    A folder that holds tarballs stands for these; any other folder is a data set. Raises an ArchecError where one
    of them is missing, and BadName that names all those whose names have a date that is none, so that nothing is read
    before all are known.
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
            hint="rename these files, or move them away and gather each by itself with --as-of",
        )
    if unclear:
        raise unclear[0]
    return sorted(chosen.values(), key=lambda one: (one.tist or MAX_TIST, one.path))


def _tarballs_in(path: Path) -> Sequence[Path]:
    try:
        names = sorted(one.name for one in path.iterdir() if _TARBALL.fullmatch(one.name)) if path.is_dir() else []
    except OSError as error:
        raise DataSetError(f"cannot read the directory {path}: {error.strerror}") from error
    return [path / name for name in names] or [path]


def still_to_read(
    chosen: Sequence[Chosen], last: LastRun | None, known: Sequence[DataSet], meter: Meter
) -> Iterator[tuple[Chosen, bool]]:
    """What a resumed command has left to do: the data sets that were not read to their end, and whether to resume.

    ``last`` is the last run, ``known`` are the data sets that the archive has read: a tarball is known by its date and
    its sha256, for which one that may be known is read. Raises UsageError where the run to resume reads something else.
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
    """Whether the archive has read this very tarball to its end. One whose members tell its date may have any."""
    known_as = {item.sha256 for item in known if item.whole and item.sha256 and one.tist in (0, item.tist)}
    try:
        return bool(known_as) and hashed(one, meter).sha256 in known_as
    except DataSetError:
        return False  # whoever reads it says so


class OverallMeter:
    """A meter for one data set after the other: its notes say how long all of them take."""

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
