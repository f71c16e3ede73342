"""An open archive: its configuration, its obi store, its catalogue."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from archec.archive.follow import is_behind
from archec.catalogue.interface import Catalogue
from archec.catalogue.open import open_catalogue
from archec.config import Config
from archec.sqlite import unwritable
from archec.store.layout import Layout, open_store
from archec.store.lock import holder


@dataclass(frozen=True, slots=True)
class Archive:
    """An open archive."""

    config: Config
    layout: Layout
    catalogue: Catalogue

    @property
    def work(self) -> Path:
        """The directory for scratch space."""
        return self.config.work_path

    def is_behind(self) -> bool:
        """Whether the catalogue may be behind the journals."""
        return is_behind(self.layout, self.catalogue)

    def was_left_behind(self) -> bool:
        """Whether the catalogue is behind although no run is active that would update it."""
        return self.is_behind() and holder(self.layout) is None and self.is_behind()


def scratch_space(config: Config) -> Path:
    """The directory for scratch files of what only reads: where temporary files belong if the archive's cannot be
    written."""
    return Path(tempfile.gettempdir()) if unwritable(config.work_path / "scratch") else config.work_path


@contextmanager
def opened(config: Config) -> Iterator[Archive]:
    """Opens the archive for reading; creates and changes nothing.

    Raises :class:`archec.errors.CatalogueError` if there is no catalogue: only runs and rebuilds create one.
    """
    layout = open_store(config)
    with closing(open_catalogue(config.database, base=config.base, read_only=True)) as catalogue:
        yield Archive(config, layout, catalogue)
