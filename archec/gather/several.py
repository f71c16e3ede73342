"""Several data sets in one command: which, in what order, which of them are still to be read, and how long it takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from archec.archive.follow import LastRun
from archec.catalogue.model import DataSet
from archec.config import Config
from archec.errors import BadName, DataSetError, UsageError
from archec.gather.dataset import Chosen, choose, hashed
from archec.progress import Meter
from archec.tist import MAX_TIST, stamp
from archec.units import human_duration

_TARBALL = re.compile(r".*\.(?:tar(?:\.(?:gz|zst|xz|bz2))?|t(?:gz|zst|xz|bz2))", re.I)


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
