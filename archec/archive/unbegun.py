"""A run that failed before it began: it has no tist and no journal; a file tells of it until the next one begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from archec.config import Config
from archec.errors import ArchecError, LockHeld, UsageError
from archec.store.durable import atomic_write


class Unbegun(Struct, frozen=True):
    """The newest such run: when it failed, and why."""

    time: int
    message: str


def unbegun(config: Config) -> Unbegun | None:
    """None where the newest run began, or what is kept of one that did not cannot be read."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(_path(config).read_bytes(), type=Unbegun)
    return None


@contextmanager
def beginning(config: Config) -> Iterator[Callable[[], None]]:
    """Keeps the error by which a run fails before it calls what it is given, which says that it has begun.

    A lock that is held and a wrong command line are no failures of a run. Where the file cannot be written, the error
    itself is what tells.
    """
    path, has_begun = _path(config), False

    def begins() -> None:
        nonlocal has_begun
        has_begun = True
        with suppress(OSError):
            path.unlink(missing_ok=True)

    try:
        yield begins
    except (LockHeld, UsageError):
        raise
    except ArchecError as error:
        if not has_begun:
            with suppress(OSError, ArchecError):
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, msgspec.json.encode(Unbegun(int(time.time()), error.message)))
        raise


def _path(config: Config) -> Path:
    return config.work_path.parent / "unbegun.json"
