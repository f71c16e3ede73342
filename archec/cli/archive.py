"""Opening an archive for the commands that read it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from archec.archive import opening
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.config import load
from archec.export.units import Selection, units
from archec.terminal.output import note


def opened(config_file: Path | None) -> AbstractContextManager[Archive]:
    """The archive that a configuration describes, open for reading (:func:`archec.archive.opening.opened`)."""
    return opening.opened(load(config_file))


def warn_if_unknown(catalogue: Catalogue, wanted: Selection) -> None:
    """Says so on stderr if the archive holds nothing of what was selected, and never did."""
    if wanted.archive and next(units(catalogue, wanted), None) is None:
        note(f"the archive holds nothing of {':'.join(filter(None, wanted))}")
