"""An open archive: its configuration, its obi store, its catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from archec.archive.follow import CATCH_UP, catch_up, is_behind
from archec.catalogue.interface import Catalogue
from archec.catalogue.open import is_read_only, open_catalogue
from archec.config import Config
from archec.errors import LockHeld, StorageFailed
from archec.store.layout import Layout, open_store
from archec.store.lock import RunLock


@dataclass(frozen=True, slots=True)
class Archive:
    """An open archive."""

    config: Config
    layout: Layout
    catalogue: Catalogue

    @property
    def work(self) -> Path:
        """The folder for scratch space."""
        return self.config.work_path

    def is_behind(self) -> bool:
        """Whether there may be journal batches that the catalogue has not followed."""
        return is_behind(self.layout, self.catalogue)


@contextmanager
def opened(config: Config) -> Iterator[Archive]:
    """Opens the archive for reading.

    What a killed run left between journal and catalogue is applied first, if no run is under way and the catalogue
    can be written; one that cannot is read as it is.
    """
    layout = open_store(config)
    read_only = is_read_only(config.database, base=config.base)
    catalogue = open_catalogue(config.database, base=config.base, create=True, read_only=read_only)
    try:
        if not read_only:
            with suppress(LockHeld, StorageFailed):  # then it is read as far as it has come
                if is_behind(layout, catalogue):
                    with RunLock(layout, CATCH_UP):
                        catch_up(layout, catalogue)
        yield Archive(config, layout, catalogue)
    finally:
        catalogue.close()
