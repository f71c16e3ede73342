"""``archec get``: the bytes of an obi as of a time."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from archec.archive.lookup import find, give, held_at
from archec.archive.opening import Archive
from archec.catalogue.model import Obi
from archec.cli.common import WHEN, NamedPath, config_option, find_cited, opened
from archec.errors import BadName, NotHeld, UsageError
from archec.ids import is_fileset, is_url, parse_fileset
from archec.store.durable import open_whole
from archec.terminal.output import TextOnly, Writable, note
from archec.tist import iso
from archec.units import human_size

if TYPE_CHECKING:
    from archec.fileset.lookup import HeldFileset


@click.command()
@click.argument("obi", metavar="ID")
@click.option("--at", "tist", type=WHEN, help="A tist, or a date in UTC (its first second); default now.")
@click.option(
    "-o",
    "--output",
    type=NamedPath(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write to this file, atomically; default: stdout, where a terminal gets text only; -: stdout in any case.",
)
@config_option
def get(obi: str, tist: int | None, output: Path | None, config_file: Path | None) -> None:
    """Write the bytes of ID as of WHEN.

    ID is a handle or a URL in any spelling; URL!/PATH is a file in a bundle, or of the data set that was ingested by
    this URL, DOI!/PATH one of a data set. The id of a fileset, its DOI, or another URL of its page stands for its
    manifest, ID@VERSION for that of this version. Redirects are followed. Prints the tist of the bytes on stderr; for a
    PATH, that of the bundle or data set. Exits with 7 if nothing was held at that time, and with 6 if the bytes are not
    those that were noted; FILE is then not written.

    Example: archec get RePEc:smp:wpaper:2024-01 --at 2024-07-01 -o paper.redif
    """
    obi = obi.lstrip() if "!/" in obi else obi.strip()  # the name of a file in a bundle may end with blanks
    version = parse_fileset(obi.partition("!/")[0]).version if is_fileset(obi) else ""
    if version and tist is not None:
        raise UsageError(f"@{version} and --at both select a state", hint="omit one of them")
    with opened(config_file) as archive:
        if "!/" in obi and is_fileset(obi):
            _get_member(archive, obi, tist, output)
            return
        try:
            found, cited = find_cited(archive, obi)
        except (NotHeld, BadName):
            if "!/" not in obi:
                raise
            _get_member(archive, obi, tist, output)
            return
        tist = cited if tist is None else tist
        held = held_at(archive, found, _moment(tist, found))
        with _target(output) as target:
            give(archive.layout, held, target.write)
        note(
            f"{held.id} noted {held.tist} ({iso(held.tist)}), sha256 {held.sha256}, {human_size(held.size)}, "
            f"{held.located.path}"
        )


def _moment(tist: int | None, obi: Obi) -> int:
    """``tist``, by default now. Raises :class:`UsageError` if it is in the future."""
    now = max(int(time.time()), obi.history.last or 0)  # runs within the same second have tists in the future
    if tist is not None and tist > now:
        raise UsageError(f"{iso(tist)} is in the future", hint="omit --at for the newest state")
    return now if tist is None else tist


def _get_member(archive: Archive, asked: str, tist: int | None, output: Path | None) -> None:
    """Writes one file in a bundle, or of a fileset: ``URL!/PATH``, ``fileset:...!/PATH``, ``DOI!/PATH``."""
    # Imported here, because it is slow to import and rarely needed.
    from archec.fileset.interior import open_member
    from archec.fileset.lookup import open_file
    from archec.fileset.manifest import is_whole, safe_path

    name, _, path = asked.partition("!/")
    with ExitStack() as stack:
        held = _data_set(archive, name) if tist is None else None
        if held is not None:
            same = [one for one in held.manifest.manifest if path in (one.path, safe_path(one))]
            if not same:
                raise NotHeld(f"{name}: it contains no file {path}")
            file = min(same, key=lambda one: one.path != path)
            if held.manifest.bundle is None and not is_whole(file):
                raise NotHeld(f"{name}: {path} is not held: {file.status}")
            stream = stack.enter_context(open_file(archive, file, held.manifest.bundle))
            whole_id, noted = held.obi.id, held.tist
        else:
            found = find(archive.catalogue, name)
            bundle = held_at(archive, found, _moment(tist, found))
            whole_id, noted = bundle.id, bundle.tist
            whole = stack.enter_context(bundle.open(archive.layout))
            stream = cast(BinaryIO, stack.enter_context(open_member(whole, path)))
        shutil.copyfileobj(stream, stack.enter_context(_target(output)))
    note(f"{path} in {whole_id} noted {noted} ({iso(noted)})")


def _data_set(archive: Archive, name: str) -> HeldFileset | None:
    """The fileset with a name. None for the URL of something else or of a file itself, which may be a bundle. Raises
    NotHeld for other names."""
    from archec.fileset.lookup import find_fileset, key_of  # as above

    try:
        held = find_fileset(archive, name)
    except NotHeld:
        if is_url(name):
            return None
        raise
    files = [*held.manifest.manifest, held.manifest.bundle] if is_url(name) else []
    urls = (file.platform_url for file in files if file is not None and file.platform_url)
    return None if any(key_of(url) == key_of(name) for url in urls) else held


@contextmanager
def _target(output: Path | None) -> Iterator[Writable]:
    """The output: a file, or stdout; on a terminal only text, unless ``-`` was given."""
    if output is not None and str(output) != "-":
        with open_whole(output) as target:
            yield target
    elif output is None and sys.stdout.isatty():
        yield TextOnly(sys.stdout.buffer)
    else:
        yield sys.stdout.buffer
