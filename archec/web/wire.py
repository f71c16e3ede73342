"""Messages between the main process and its workers: a length, then one marshalled tuple.

marshal is the quickest of the standard library's formats for tuples of text and numbers, cannot run
code when it is read, and both ends are the same Python.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from typing import Any

from archec.web.outcome import Outcome
from archec.web.task import FetchTask, Hop

__all__ = ["Inbox", "frame", "hop_from", "hop_to", "task_from"]

_LENGTH = 4

# Kinds of messages to a worker ...
TASKS = 1
"""(TASKS, [(serial, *task), ...])"""
CONCURRENCY = 2
"""(CONCURRENCY, number)"""
STOP = 3
"""(STOP, whether to finish what is under way)"""
# ... and from it.
HOPS = 4
"""(HOPS, [(serial, *hop), ...], bytes received since the last such message)"""
FATAL = 5
"""(FATAL, whether the disk is full, message)"""
STOPPED = 6
"""(STOPPED, serials that were dropped from the queues)"""

_OUTCOMES: dict[str, Outcome] = {outcome.value: outcome for outcome in Outcome}


def frame(message: tuple[Any, ...]) -> bytes:
    """A message as bytes to send."""
    body = marshal.dumps(message)
    return len(body).to_bytes(_LENGTH, "big") + body


class Inbox:
    """Puts received bytes together again."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """The messages that ``data`` completes."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH:
            end = start + _LENGTH + int.from_bytes(buffer[start : start + _LENGTH], "big")
            if len(buffer) < end:
                break
            yield marshal.loads(memoryview(buffer)[start + _LENGTH : end])
            start = end
        del buffer[:start]


def task_from(item: tuple[Any, ...]) -> tuple[int, FetchTask]:
    """A task as it arrives."""
    return item[0], FetchTask._make(item[1:])


def hop_to(serial: int, hop: Hop) -> tuple[Any, ...]:
    """A hop as it travels: its outcome as text."""
    outcome = hop.outcome
    return (serial, hop.url, hop.kind, None if outcome is None else outcome.value, *hop[3:])


def hop_from(item: tuple[Any, ...]) -> tuple[int, Hop]:
    """A hop as it arrives."""
    outcome = item[3]
    return item[0], Hop(item[1], item[2], None if outcome is None else _OUTCOMES[outcome], *item[4:])
