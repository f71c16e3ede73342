"""What a worker process is told at its start."""

from __future__ import annotations

from typing import NamedTuple

from archec.config import FetchConfig
from archec.web.limits import Tuning
from archec.web.task import Sink

__all__ = ["Orders"]


class Orders(NamedTuple):
    """Pickled to the worker; ``concurrency`` is its first share of the requests in flight."""

    config: FetchConfig
    agent: str
    sink: Sink
    tuning: Tuning
    concurrency: int
