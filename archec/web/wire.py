"""Messages between the fetch pool and its workers, sent by :mod:`archec.workers.pipe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from archec.web.task import FetchTask, Hop


class Tasks(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """To a worker: tasks, each with its serial number."""

    items: Sequence[tuple[int, FetchTask]]


class Concurrency(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """To a worker: its share of the requests in flight."""

    number: int


class HostsKnown(msgspec.Struct, array_like=True, tag=7, frozen=True):
    """To a worker: what is known of hosts: name, faults in a row, seconds for which it is not to be asked."""

    items: Sequence[tuple[str, int, float]]


class Stop(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """To a worker: it is to leave, and whether it finishes what is in flight."""

    finish: bool


class Hops(msgspec.Struct, array_like=True, tag=4, frozen=True):
    """From a worker: hops, and what it sent and received since the last such message: requests, robots.txt and repeats
    among them, and bytes of bodies, wanted or not. An empty one is a sign of life.

    With each hop come the serial number of its task and its ``temp``, as bytes since not every path is UTF-8.
    """

    items: Sequence[tuple[int, bytes, Hop]] = ()
    received: int = 0
    requests: int = 0


class Fatal(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """From a worker: it cannot write, because no space is left or for another reason."""

    full: bool
    message: str


class Stopped(msgspec.Struct, array_like=True, tag=6, frozen=True):
    """From a worker: it has nothing more to say."""


ToWorker: Any = Tasks | Concurrency | HostsKnown | Stop
FromWorker: Any = Hops | Fatal | Stopped
