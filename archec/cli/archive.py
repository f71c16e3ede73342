"""Opening an archive for the commands that read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from archec.catalogue.interface import Catalogue
from archec.catalogue.open import is_read_only, open_catalogue
from archec.config import Config, load
from archec.errors import LockHeld, StorageFailed
from archec.gather.recover import CATCH_UP, catch_up, is_behind
from archec.store.layout import Layout, open_store
from archec.store.lock import RunLock
from archec.terminal.output import note

if TYPE_CHECKING:
    from archec.export.units import Selection


def tell_unknown(catalogue: Catalogue, wanted: Selection) -> None:
    """Says so on stderr if the archive holds nothing of what was selected, and never did."""
    if not wanted.archive:
        return
    from archec.export.units import units  # most commands select nothing

    if next(units(catalogue, wanted), None) is None:
        note(f"the archive holds nothing of {':'.join(filter(None, wanted))}")


@dataclass(frozen=True, slots=True)
class Archive:
    """An open archive."""

    config: Config
    layout: Layout
    catalogue: Catalogue


@contextmanager
def opened(config_file: Path | None) -> Iterator[Archive]:
    """Opens the archive for reading.

    What a killed run left between journal and catalogue is applied first, if no run is under way and the catalogue
    can be written; a read-only catalogue is read as it is.
    """
    config = load(config_file)
    layout = open_store(config)
    read_only = is_read_only(config.database, base=config.base)
    catalogue = open_catalogue(config.database, base=config.base, create=True, read_only=read_only)
    try:
        if not read_only:
            with suppress(LockHeld, StorageFailed):  # then it is read as far as it goes
                if is_behind(layout, catalogue):
                    with RunLock(layout, CATCH_UP):
                        catch_up(layout, catalogue)
        yield Archive(config, layout, catalogue)
    finally:
        catalogue.close()
