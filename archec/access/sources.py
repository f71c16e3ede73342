"""What a collection asks: the interface of sources, and what they report of failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from archec.access.errors import SourceFailed
from archec.access.query import Query
from archec.access.rows import Row


class Errors(dict[str, str]):
    """Reasons by the name of the source that failed. Of those that are ``silent`` no more records are asked."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = set[str]()


class Source:
    """An index. ``name`` is the declared name, ``type`` what rows have as ``source_type``."""

    type = ""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def is_out(self) -> bool:
        """Whether it is left out for a while because it keeps failing."""
        return False

    def faults(self) -> Iterable[str]:
        """What is wrong with it, for ``/healthz`` and the log. Must not wait."""
        return ()


class AskedSource(Source):
    """An index elsewhere, which is asked."""

    async def ask(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        """The rows of a query, in one or several parts, each in the order in which the query asks sources.

        A source that cannot answer puts the reason into ``errors``.
        """
        raise NotImplementedError


class LocalSource(Source):
    """An index that is read. Reading its rows may block, so it is done in a thread if there are many."""

    def parts(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        """As :meth:`AskedSource.ask`."""
        raise NotImplementedError

    def parts_at_once(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]] | None:
        """As ``parts`` where a few rows are read faster than a thread would take over; None if it may wait."""
        return None

    def prepare(self) -> None:
        """Does what is done once before the first use, if anything is. May take long."""


class NoSource(LocalSource):
    """A source that is always empty, and says why."""

    def __init__(self, name: str, type_: str, reason: str) -> None:
        super().__init__(name)
        self.type, self._reason = type_, reason

    def parts(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        """Nothing, and why."""
        errors[self.name] = self._reason
        return ()


def guarded(rows: Iterator[Row], name: str, errors: Errors) -> Iterator[Row]:
    """The rows, which end where their source fails; the reason is then in ``errors``."""
    try:
        yield from rows
    except SourceFailed as error:
        errors[name] = error.message
