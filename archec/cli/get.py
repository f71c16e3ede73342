"""``archec get``: the bytes of an obi as of a time."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import click

from archec.cli.common import config_option, opened
from archec.errors import StorageFailed
from archec.lookup.obi import find, held_at
from archec.tist import iso, parse_when
from archec.units import human_size

__all__ = ["get"]


@click.command()
@click.argument("obi", metavar="ID")
@click.option("--at", "when", metavar="WHEN", help="A tist or a date; default now. Dates are UTC.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write here, not to stdout."
)
@config_option
def get(obi: str, when: str | None, output: Path | None, config_file: Path | None) -> None:
    """Write the bytes of ID, a handle or a URL in any spelling, as of WHEN.

    Redirects are followed. Says on stderr which tist it is. Exits with 7 where nothing was held then.
    """
    tist = parse_when(when) if when is not None else None
    with opened(config_file) as archive:
        found = find(archive.catalogue, obi)
        if tist is None:  # runs that follow each other within a second have tists that have not come yet
            tist = max(int(time.time()), found.history.last or 0)
        held = held_at(archive.layout, archive.catalogue, found, tist)
        with held.open(archive.layout) as source:
            if output is None:
                shutil.copyfileobj(source, sys.stdout.buffer)
            else:
                try:
                    with output.open("wb") as target:
                        shutil.copyfileobj(source, target)
                except OSError as error:
                    raise StorageFailed(f"{output}: {error.strerror}") from error
        click.echo(
            f"archec: {held.id} noted {held.tist} ({iso(held.tist)}), md5 {held.md5}, {human_size(held.size)}, "
            f"{held.located.path}",
            err=True,
        )
