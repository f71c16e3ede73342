"""The interface of sources, the errors that they report, and how long one that keeps failing is skipped."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from anyio import CancelScope, current_time

from archec.access.errors import NotInTime, SourceFailed
from archec.access.query import Query
from archec.access.rows import Row

_MAX_REASONS = 1000
_FAILURES, _WITHIN, _PAUSE = 3, 20.0, 20.0
"""A source with ``_FAILURES`` failures within ``_WITHIN`` seconds is skipped for ``_PAUSE`` seconds."""
LEFT_OUT = f"left out for {_PAUSE:g} s after {_FAILURES} failures"
Loss = dict[str, int]
"""The tists at which an obi was last ``seen``, and ``from`` which on it is lost."""


class Errors(dict[str, str]):
    """Error messages by source. What is set for one source is joined: several of its files may fail, and steps of a
    sequence may share a name. At most about ``_MAX_REASONS`` characters are kept per source. ``silent`` are
    loaders that timed out, with the source of the row: they are not tried again. Sources that have ``failed`` are not
    asked again."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: set[tuple[object, str]] = set()
        self.failed: set[Source] = set()

    def __setitem__(self, name: str, reason: str) -> None:
        known = self.get(name, "")
        if not known:
            super().__setitem__(name, reason)
        elif reason not in known and len(known) < _MAX_REASONS:
            super().__setitem__(name, f"{known}; {reason}")


class Source:
    """An index. ``name`` is its configured name, ``type`` the ``source_type`` of its rows."""

    type = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def failed(self, reason: str, errors: Errors) -> None:
        """Notes that it did not answer."""
        errors[self.name] = reason
        errors.failed.add(self)

    @property
    def is_out(self) -> bool:
        """Whether it is skipped for now because it keeps failing."""
        return False

    def lost(self, url: str) -> Loss | None:
        """When the obi that a URL means was last seen and found lost. None if it is held or was never held. May
        block."""
        return None

    def faults(self) -> Iterable[str]:
        """Its faults, for ``/healthz`` and the log. Must not block."""
        return ()


class Health:
    """Tracks the failures of a source."""

    def __init__(self) -> None:
        self._failures: list[float] = []
        self._out_until = 0.0

    @property
    def is_out(self) -> bool:
        return time.monotonic() < self._out_until

    def failed(self) -> None:
        now = time.monotonic()
        self._failures = [one for one in self._failures if now - one < _WITHIN] + [now]
        if len(self._failures) >= _FAILURES:
            self._out_until = now + _PAUSE
            self._failures = []

    def answered(self) -> None:
        self._failures.clear()


class ServerSource(Source):
    """An index on another server."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.health = Health()

    def failed(self, reason: str, errors: Errors) -> None:
        self.health.failed()
        super().failed(reason, errors)

    @property
    def is_out(self) -> bool:
        return self.health.is_out


class AskedSource(Source, ABC):
    """A remote index."""

    @abstractmethod
    async def ask(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        """Returns the rows of a query in one or more parts, each in the order in which the query asks sources.

        A source that fails adds the reason to ``errors``.
        """


class LocalSource(Source, ABC):
    """A local index. Reading its rows may block, so many rows are read in a thread."""

    @abstractmethod
    def parts(self, query: Query, errors: Errors, *, at_once: bool = False) -> Sequence[Iterator[Row]]:
        """As :meth:`AskedSource.ask`. With ``at_once``, raises MayBlock unless reading a few rows is faster than
        switching to a thread."""

    def prepare(self) -> None:
        """One-time work before the first use, if any. May take long."""


def guarded(rows: Iterator[Row], name: str, errors: Errors) -> Iterator[Row]:
    """Yields rows until the source fails; the reason is then added to ``errors``."""
    try:
        yield from rows
    except SourceFailed as error:
        errors[name] = error.message


@contextmanager
def in_time(seconds: float) -> Iterator[CancelScope]:
    """Limits the time of a block. Raises NotInTime when it is up."""
    with CancelScope(deadline=current_time() + seconds) as scope:
        yield scope
    if scope.cancelled_caught:
        raise NotInTime(f"no answer within {seconds:g} s")
