"""Options shared by several commands, and opening the archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from archec.archive import opening
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi
from archec.config import DEFAULT_FILE, Config, load
from archec.digest import Digests
from archec.errors import (
    BadName,
    CatalogueError,
    CatalogueGone,
    CorruptArchive,
    Exit,
    NotHeld,
    StorageFailed,
    UsageError,
    storage_errors,
    user_name,
)
from archec.export.units import UnitSelection, units
from archec.ids import is_fileset, is_url, parse_fileset, typed
from archec.terminal.output import note
from archec.tist import parse_when
from archec.units import parse_duration, parse_share, parse_size

_F = TypeVar("_F", bound=Callable[..., Any])

_IDENTIFIERS = ("doi:", "hdl:", "info:", "10.")


class _Parsed(click.ParamType):  # type: ignore[type-arg]  # it takes one in new versions of click only
    """An option value parsed by a function, to whose errors the name of the option is added."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except (BadName, UsageError) as error:
            option = f"{param.opts[-1]}: " if param is not None else ""
            raise UsageError(f"{option}{error.message}", hint=error.hint) from error


class NamedPath(click.Path):
    """A path, which is not empty: an empty one, as of a variable that is not set, would be the working directory."""

    def __init__(
        self, *, exists: bool = False, file_okay: bool = True, dir_okay: bool = True, allow_dash: bool = False
    ) -> None:
        super().__init__(
            exists=exists, file_okay=file_okay, dir_okay=dir_okay, allow_dash=allow_dash, path_type=Path,
            readable=False,  # where it is opened, a message says whose it is
        )  # fmt: skip

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


DATE, WHEN = _Parsed("date", parse_when), _Parsed("when", parse_when)
DURATION, SIZE, SHARE = _Parsed("duration", parse_duration), _Parsed("size", parse_size), _Parsed("share", parse_share)
PATH = NamedPath()
FILE, DIRECTORY = NamedPath(dir_okay=False), NamedPath(file_okay=False)
READABLE = NamedPath(exists=True, dir_okay=False)

pywb_option = click.option(
    "--pywb", "pywb_file", type=FILE, metavar="FILE", help="Also use the collections of a pywb config.yaml."
)
config_option = click.option(
    "--config", "config_file", type=PATH, metavar="FILE",
    help="Configuration file; default: $ARCHEC_CONFIG, else ./config.yaml.",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, everything else on stderr.")


def output_option(help: str) -> Callable[[_F], _F]:  # noqa: A002
    """``-o FILE``, for a file that is written atomically."""
    return click.option("-o", "--output", type=FILE, help=help)


def report_options(function: _F) -> _F:
    """``--json`` and ``--config FILE``, on reporting commands that work on an archive."""
    return json_option(config_option(function))


def leave(code: Exit) -> NoReturn:
    """Ends the command with an exit code."""
    raise click.exceptions.Exit(int(code))


def load_or_default(file: Path | None) -> Config:
    """The configuration, or its defaults if no file is given and none is here; for commands that need no archive."""
    return load(file) if file or Path(DEFAULT_FILE).exists() else Config()


def digests_of(path: Path) -> Digests:
    """The checksums of a file. Raises :class:`StorageFailed`."""
    with storage_errors(path), path.open("rb") as file:
        return Digests.of(file)


def warn_if_root(config: Config) -> None:
    """Notes on stderr if root is about to write files into another user's archive."""
    path = config.store_path
    owner = path.stat().st_uid if path.exists() else 0
    if owner and os.geteuid() == 0:
        note(f"warning: {path} belongs to {user_name(owner)}, who cannot write what root creates")
        note("    run archec as that user")


def run_of(word: str, config_file: Path | None, lister: str = "archec runs") -> int:
    """The run named on the command line by its software tist, or the newest gathering for ``last``. ``lister`` is the
    command that lists such runs. Raises UsageError, and NotHeld if there is no gathering."""
    from archec.archive.runs import newest_gathering, run_named  # few commands name a run

    def newest() -> int:
        with opened(config_file) as archive:
            return newest_gathering(archive.catalogue)

    run = run_named(newest, word)
    if run is None:
        raise UsageError(f"{word!r} is not a run", hint=f"{lister!r} lists them")
    return run


@contextmanager
def opened(config: Config | Path | None) -> Iterator[Archive]:
    """The archive of a configuration (or its file), open for reading (:func:`archec.archive.opening.opened`).

    Warns on stderr if its catalogue may be out of date.
    """
    with opening.opened(config if isinstance(config, Config) else load(config)) as archive:
        try:
            behind = archive.was_left_behind()
        except CatalogueGone:
            raise
        except (CatalogueError, CorruptArchive, StorageFailed) as error:  # the data may be intact
            note(f"warning: {error}")
            behind = False
        if behind:
            note(f"warning: the catalogue {archive.catalogue.url} is behind the journals")
            note("    the next run or 'archec check --fix' updates it, unless it is being rebuilt")
        yield archive


def is_citation(asked: str) -> bool:
    """Whether a name is written as a DOI or a handle, with or without ``doi:`` and ``hdl:``."""
    return asked.strip().lower().startswith(_IDENTIFIERS)


def find_cited(archive: Archive, asked: str) -> tuple[Obi, int | None]:
    """An obi by its id, or a fileset by another of its names (``archec fileset show``), and then the tist of the state
    that this names. Raises :class:`NotHeld` and :class:`BadName`."""
    from archec.archive.lookup import find  # commands that look nothing up do not need it

    plain, unknown = typed(asked), None
    try:
        if not (is_fileset(plain) and parse_fileset(plain).version):
            return find(archive.catalogue, asked), None
    except (NotHeld, BadName) as error:
        unknown = error if is_url(plain) else None
        if "!/" in plain or not (unknown or is_citation(plain)):
            raise
    from archec.fileset.lookup import find_fileset  # slow to import, and rarely needed

    try:
        held = find_fileset(archive, plain)
    except NotHeld as error:
        raise unknown or error from error
    return held.obi, held.tist


def warn_if_unknown(catalogue: Catalogue, wanted: UnitSelection) -> None:
    """Notes on stderr if the archive holds nothing of the selection, and never did."""
    if wanted.archive and next(units(catalogue, wanted), None) is None:
        note(f"the archive holds nothing of {':'.join(filter(None, wanted))}")
