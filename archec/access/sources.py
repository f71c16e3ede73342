"""What a collection asks: the interface of sources, and what they report of failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from archec.access.errors import SourceFailed
from archec.access.query import Query
from archec.access.rows import Row


class Errors(dict[str, str]):
    """Reasons by the name of the source that failed."""


class Source(Protocol):
    """An index that can be asked. ``name`` is the declared name, ``type`` what rows have as ``source_type``."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def is_out(self) -> bool:
        """Whether it is left out for a while because it keeps failing."""
        ...

    async def ask(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        """The rows of a query, in one or several parts, each in the order in which the query asks sources.

        A source that cannot answer puts the reason into ``errors``.
        """
        ...

    def faults(self) -> Iterable[str]:
        """What is wrong with it, for ``/healthz`` and the log. Must not wait."""
        ...


class LocalSource(Source, Protocol):
    """A source that waits for no network. Reading its rows may block, so it is done in a thread if there are many."""

    def parts(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        """As ``ask``."""
        ...

    def parts_at_once(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]] | None:
        """As ``parts`` where a few rows are read faster than a thread would take over, else None."""
        ...

    def prepare(self) -> None:
        """Does what is done once before the first use. May take long."""
        ...


class NoSource:
    """A source that is always empty, and says why. See :class:`LocalSource`."""

    is_out = False

    def __init__(self, name: str, type_: str, reason: str) -> None:
        self.name, self.type, self._reason = name, type_, reason

    async def ask(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        """Nothing."""
        return self.parts(query, errors)

    def parts(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        """Nothing, and why."""
        errors[self.name] = self._reason
        return ()

    def parts_at_once(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        """As ``parts``."""
        return self.parts(query, errors)

    def prepare(self) -> None:
        """Nothing is to be done."""

    def faults(self) -> Iterable[str]:
        """None: each answer says it."""
        return ()


def guarded(rows: Iterator[Row], name: str, errors: Errors) -> Iterator[Row]:
    """The rows, which end where their source fails; the reason is then in ``errors``."""
    try:
        yield from rows
    except SourceFailed as error:
        errors[name] = error.message
