"""The base class of everything that is closed at the end of a block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

_C = TypeVar("_C", bound="Closing")


class Closing(ABC):
    """A context manager that closes itself."""

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Called at the end of the block."""
