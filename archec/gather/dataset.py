"""Data set: what a run reads, and the tist that all of it gets (design, section 4)."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from archec.catalogue.interface import Catalogue
from archec.config import Config
from archec.errors import DamagedDataSet, DataSetError, RetractedDataSet, UsageError
from archec.gather.reading import Reading
from archec.progress import Meter
from archec.tist import date_in_name, iso

_CHUNK = 1 << 20


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
