"""The units of a vault, one for each series of each archive: their selection, their templates, their file names.

A unit contains the templates of its series and the files that these mention or ever mentioned. The template of an
archive is in a unit without a series; templates without a RePEc handle are in OTHER, all filesets in FILESETS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import NamedTuple

from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi
from archec.errors import UsageError
from archec.ids import archive_of, escape, normalise_handle, series_of

_CODE = re.compile(r"[^\s:/\\\x00-\x1f\x7f]+")
_LAST = "\U0010ffff"
_MAX_CODE = 80
"""Maximum length in bytes of the code of an archive or a series in a file name; longer ones are cut and hashed."""


class Unit(NamedTuple):
    """An archive and a series by their codes; without a ``series``, the template of the archive."""

    archive: str
    series: str

    @property
    def handle(self) -> str:
        """The handle of the archive or series."""
        return ":".join(("RePEc", self.archive, self.series)).rstrip(":") if self.archive else self.series or "other"

    @property
    def folder(self) -> str:
        """The name of the directory with the WARC files of the archive."""
        return _code(self.archive) if self.archive else f"+{self.series or 'other'}"

    @property
    def name(self) -> str:
        """The prefix of the names of the unit's files. No code contains a ``+``."""
        return f"{self.folder}+{_code(self.series)}" if self.archive and self.series else self.folder


OTHER = Unit("", "")
"""The unit of everything without a handle of RePEc's form."""
FILESETS = Unit("", "filesets")
"""The unit of all filesets."""


class UnitSelection(NamedTuple):
    """The requested units: all, those of an archive, or one series."""

    archive: str = ""
    series: str = ""


def selection(archive: str | None, series: str | None) -> UnitSelection:
    """The selection of ``--archive`` and ``--series``. A series is ``sss`` with an archive, otherwise ``aaa:sss``.

    Both may begin with ``RePEc:``. Raises UsageError if they are not codes or do not match.
    """
    if archive is not None:
        archive = _bare(archive)
        if not _CODE.fullmatch(archive):
            raise UsageError(f"--archive {archive!r} is not the code of an archive", hint="write it like 'aaa'")
    if series is None:
        return UnitSelection(archive or "")
    whole, colon, code = _bare(series).partition(":")
    if not colon:
        whole, code = archive or "", whole
    if not _CODE.fullmatch(whole) or not _CODE.fullmatch(code) or whole != (archive or whole):
        raise UsageError(
            f"--series {series!r} does not name a series" + (f" of {archive}" if archive else ""),
            hint="write --series aaa:ssssss, or --archive aaa --series ssssss",
        )
    return UnitSelection(whole, code)


def unit_of(tobi: str) -> Unit:
    archive = archive_of(tobi)
    return Unit(archive, series_of(tobi)) if archive else OTHER


def units(catalogue: Catalogue, wanted: UnitSelection) -> Iterator[Unit]:
    """The units that are not empty, each once, in any order."""
    if wanted.series:
        unit = Unit(wanted.archive, wanted.series)
        if next(tobis_of(catalogue, unit), None) is not None:
            yield unit
        return
    prefix, seen = "", set[int]()
    if wanted.archive:
        own = Unit(wanted.archive, "")
        prefix, seen = f"RePEc:{wanted.archive}:", {_key(own)}
        if next(tobis_of(catalogue, own), None) is not None:
            yield own
    elif next(catalogue.ingests(), None) is not None:
        yield FILESETS
    ids = takewhile(lambda obi: obi.startswith(prefix), (row.id for row in catalogue.scan(prefix)))
    for unit, _ in groupby(ids, unit_of):  # a unit may come again: "RePEc:aaa:x-y:1" sorts before "RePEc:aaa:x:1"
        key = _key(unit)
        if key not in seen:
            seen.add(key)
            yield unit


def _key(unit: Unit) -> int:
    return xxh3_64_intdigest("\0".join(unit).encode("utf-8", "surrogatepass"))


def tobis_of(catalogue: Catalogue, unit: Unit) -> Iterator[Obi]:
    """The tobis of a unit, in any order."""
    if unit == OTHER:
        yield from takewhile(lambda tobi: tobi.id < "RePEc:", catalogue.all("tobi"))
        yield from _with_prefix(catalogue, "RePEc::")
        yield from (tobi for tobi in catalogue.all("tobi", "RePEc:" + _LAST) if unit_of(tobi.id) == OTHER)
        return
    alone = [f"RePEc:{unit.archive}:{unit.series}"]
    if not unit.series:
        alone.append(f"RePEc:{unit.archive}")
    yield from catalogue.obis("tobi", alone).values()
    yield from _with_prefix(catalogue, _prefix(unit))


def _with_prefix(catalogue: Catalogue, prefix: str) -> Iterator[Obi]:
    """The tobis whose ids begin with ``prefix``, which ends with a colon."""
    for tobi in catalogue.all("tobi", f"{prefix[:-1]}9{_LAST}"):
        if tobi.id.startswith(prefix):
            yield tobi
        elif tobi.id > prefix:
            return


def _prefix(unit: Unit) -> str:
    return f"RePEc:{unit.archive}:{unit.series}:"


def _bare(text: str) -> str:
    return normalise_handle(text).removeprefix("RePEc:")


def _code(code: str) -> str:
    """A code as part of a file name: escaped like an id; a long one is truncated, and its hash appended."""
    name = escape(code)
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _MAX_CODE:
        cut = name[:_MAX_CODE].rpartition("%")[0] if "%" in name[_MAX_CODE - 2 : _MAX_CODE] else name[:_MAX_CODE]
        return f"{cut}~{xxh3_128_hexdigest(code.encode('utf-8', 'surrogatepass'))}"
    return name
