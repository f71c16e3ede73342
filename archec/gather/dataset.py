"""Data set: what a run reads, and the tist that all of it gets (design, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from archec.config import Config
from archec.errors import DataSetError, UsageError
from archec.tist import date_in_name, iso

__all__ = ["Chosen", "choose", "newest_member", "printable"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A data set to read. ``tist`` is 0 where only its members' times can tell."""

    path: Path
    kind: str
    tist: int

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
    date that has not come yet.
    """
    path = config.data_path if file is None else file.absolute()
    if not path.exists():
        hint = "set ReDIF_directory in the configuration, or link it to a data set" if file is None else ""
        raise DataSetError(f"{path}: no such data set", hint=hint)
    kind = "directory" if path.is_dir() else "tarball"
    named = date_in_name(path.name) if file is not None else None
    if as_of is not None:
        tist = as_of
    elif named is not None:
        tist = named
    else:
        tist = run if kind == "directory" else 0
    if tist > run:
        raise UsageError(f"{path}: its date {iso(tist)} has not come yet", hint="give another one with --as-of")
    return Chosen(path, kind, tist)


def newest_member(path: Path, newest: int) -> int:
    """The date of a tarball by its newest member; DataSetError where no member has a time."""
    if newest <= 0:
        raise DataSetError(f"{path}: neither its name nor its members carry a date", hint="give one with --as-of")
    return newest
