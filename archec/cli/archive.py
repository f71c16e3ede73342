"""Opening an archive for the commands that read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from archec.archive import opening
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.config import load
from archec.export.units import Selection, units
from archec.terminal.output import note


@contextmanager
def opened(config_file: Path | None) -> Iterator[Archive]:
    """The archive that a configuration describes, open for reading (:func:`archec.archive.opening.opened`).

    Says on stderr where its catalogue may be out of date.
    """
    with opening.opened(load(config_file)) as archive:
        if archive.was_left_behind():
            note(f"warning: the catalogue {archive.catalogue.url} has not followed the journals to their end")
            note("    the next run lets it catch up, and so does 'archec check --fix'")
        yield archive


def warn_if_unknown(catalogue: Catalogue, wanted: Selection) -> None:
    """Says so on stderr if the archive holds nothing of what was selected, and never did."""
    if wanted.archive and next(units(catalogue, wanted), None) is None:
        note(f"the archive holds nothing of {':'.join(filter(None, wanted))}")
