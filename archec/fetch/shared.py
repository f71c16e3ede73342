"""The HTTP/2 connections that are open, by origin, and which origins speak HTTP/1.1 only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from archec.fetch.h1 import H1Connection

if TYPE_CHECKING:
    from archec.fetch.session import Session
    from archec.fetch.stream import H2Stream

__all__ = ["Shared"]

_REMEMBERED = 20_000


class Shared:
    """Lends streams on connections that are there, and has one connection opened where several ask at once.

    ``keep`` and ``keep_idle`` as for ``DirectTransport``.
    """

    def __init__(self, keep: int, keep_idle: float) -> None:
        self._keep = keep
        self._keep_idle = keep_idle
        self._sessions: dict[object, list[Session]] = {}
        self._openings: dict[object, asyncio.Task[H1Connection | Session]] = {}
        self._plain: set[object] = set()

    def multiplexes(self, key: object) -> bool:
        """Whether the origin is not known to want HTTP/1.1."""
        return key not in self._plain

    def learn(self, key: object) -> None:
        """The origin wants HTTP/1.1."""
        if len(self._plain) >= _REMEMBERED:
            self._plain.clear()
        self._plain.add(key)

    def lend(self, key: object) -> H2Stream | None:
        """A stream on a connection that has room; None where there is none."""
        for session in self._sessions.get(key, ()):
            if session.room:
                return session.stream()
        return None

    async def opened(
        self,
        key: object,
        opening: Callable[[], Awaitable[H1Connection | Session]],
        keep: Callable[[H1Connection], None],
        *,
        alone: bool,
    ) -> H2Stream | None:
        """A stream on a connection that was opened now, for this request ``alone`` or for all that wait.

        None where the server speaks HTTP/1.1: the connection then was given to ``keep``.
        Raises what ``opening`` raises.
        """
        if alone:
            made = await self._open(key, opening, keep)
            if isinstance(made, H1Connection):
                return None
            made.reserved = True
            return made.stream()
        stream: H2Stream | None = None
        while stream is None and self.multiplexes(key):
            task = self._openings.get(key)
            asked = task is not None
            if task is None:
                task = self._openings[key] = asyncio.ensure_future(self._open(key, opening, keep))
                task.add_done_callback(lambda _: self._openings.pop(key))
            made = await asyncio.shield(task)
            if not isinstance(made, H1Connection):
                stream = self.lend(key) if asked else made.stream()
        return stream

    def sweep(self, now: float) -> None:
        """Closes connections that were unused for too long; ``now`` is the event loop's time."""
        for key in list(self._sessions):
            left = []
            for session in self._sessions[key]:
                if session.idle and now - session.idle_since >= self._keep_idle:
                    session.abort()
                if not session.lost:
                    left.append(session)
            if left:
                self._sessions[key] = left
            else:
                del self._sessions[key]

    async def aclose(self) -> None:
        """Closes all connections."""
        openings = list(self._openings.values())
        for task in openings:
            task.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
        for sessions in self._sessions.values():
            for session in sessions:
                session.abort()
        self._sessions.clear()

    async def _open(
        self,
        key: object,
        opening: Callable[[], Awaitable[H1Connection | Session]],
        keep: Callable[[H1Connection], None],
    ) -> H1Connection | Session:
        made = await opening()
        if isinstance(made, H1Connection):
            self.learn(key)
            keep(made)
        else:
            self._make_room()
            self._sessions.setdefault(key, []).append(made)
        return made

    def _make_room(self) -> None:
        """Closes the connection that was unused for longest where there are as many as may be."""
        if sum(map(len, self._sessions.values())) >= self._keep:
            unused = [one for sessions in self._sessions.values() for one in sessions if one.idle and not one.lost]
            if unused:
                min(unused, key=lambda one: one.idle_since).abort()
