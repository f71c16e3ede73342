"""Loading records: the interface of loaders."""

from __future__ import annotations

from typing import Protocol


class Loader(Protocol):
    """Loads the record of a row."""
