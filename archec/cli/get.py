"""``archec get``: the bytes of an obi as of a time."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from archec.archive.lookup import find, give, held_at
from archec.cli.common import config_option, opened
from archec.terminal.files import open_whole
from archec.terminal.output import note
from archec.tist import iso, parse_when
from archec.units import human_size


@click.command()
@click.argument("obi", metavar="ID")
@click.option("--at", "when", metavar="WHEN", help="A tist or a date; default now. Dates are UTC.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write to this file, atomically; - is stdout, the default.",
)
@config_option
def get(obi: str, when: str | None, output: Path | None, config_file: Path | None) -> None:
    """Write the bytes of ID as of WHEN.

    ID is a handle or a URL in any spelling. Redirects are followed. Prints on stderr which tist they are of. Exits
    with 7 if nothing was held then, and with 6 if the bytes are not those that were noted; FILE is then not
    written.
    """
    tist = parse_when(when) if when is not None else None
    with opened(config_file) as archive:
        found = find(archive.catalogue, obi)
        if tist is None:  # runs that follow each other within a second have tists in the future
            tist = max(int(time.time()), found.history.last or 0)
        held = held_at(archive, found, tist)
        if output is None or str(output) == "-":
            give(archive.layout, held, sys.stdout.buffer.write)
        else:
            with open_whole(output) as target:
                give(archive.layout, held, target.write)
        note(
            f"{held.id} noted {held.tist} ({iso(held.tist)}), sha256 {held.sha256}, {human_size(held.size)}, "
            f"{held.located.path}"
        )
