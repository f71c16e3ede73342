"""Opening an archive for the commands that read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from archec.archive import opening
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.config import load
from archec.terminal.output import note

if TYPE_CHECKING:
    from archec.export.units import Selection


@contextmanager
def opened(config_file: Path | None) -> Iterator[Archive]:
    """Opens the archive that a configuration file describes, for reading (:func:`archec.archive.opening.opened`)."""
    with opening.opened(load(config_file)) as archive:
        yield archive


def tell_unknown(catalogue: Catalogue, wanted: Selection) -> None:
    """Says so on stderr if the archive holds nothing of what was selected, and never did."""
    if not wanted.archive:
        return
    from archec.export.units import units  # most commands select nothing

    if next(units(catalogue, wanted), None) is None:
        note(f"the archive holds nothing of {':'.join(filter(None, wanted))}")
