"""A worker process of the text pool: one line in for each file, one line out, in the same order.

Started by :mod:`archec.text.pool` as a fresh interpreter. It limits itself before it reads anything:
address space, CPU time for each file, file sizes, no core files; it ignores SIGINT (the run decides),
and it ends when its pipe closes or its parent is gone.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator

from archec.text.body import Limits
from archec.text.orders import READY, RETIRED, Orders
from archec.text.result import TextResult

__all__ = ["Extractor", "main"]

Extractor = Callable[[str, str, str, Limits], TextResult]

_PARENT_CHECK = 5.0


def main() -> None:
    """The life of a worker. Nothing but the pool's pipe is read, nothing but it written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = Orders(**json.loads(sys.argv[1]))
    answers = os.dup(1)
    _silence()
    try:
        extract = _function(orders.extractor)
    except (ImportError, AttributeError) as error:
        _write(answers, f"! {error}")
        return
    base = _mapped()
    _limit(orders, base)
    limits = Limits(max_size=orders.max_size, timeout=orders.timeout)
    _write(answers, f"{READY} - ")
    for number, path, media_type, content_encoding in _tasks(os.getppid()):
        _limit_cpu(orders.timeout)
        try:
            result = extract(path, media_type, content_encoding, limits)
        except MemoryError:
            result = TextResult(None, "memory")
        except Exception:  # noqa: BLE001 - a fault of a parser that it does not name: the file's, not the run's
            result = TextResult(None, "damaged")
        _write(answers, f"{number} {result.md5 or '-'} {result.reason}")
        if result.reason == "memory" or _mapped() - base > orders.max_memory // 2:
            _write(answers, f"{RETIRED} - ")
            return


def _function(reference: str) -> Extractor:
    module, _, name = reference.partition(":")
    function: Extractor = getattr(importlib.import_module(module), name)
    return function


def _silence() -> None:
    """Native libraries that print must not reach the pool's pipe or the operator's terminal."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def _tasks(parent: int) -> Iterator[tuple[int, str, str, str]]:
    """Lines from the pool until its end of the pipe closes."""
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], _PARENT_CHECK)
        if not ready:
            if os.getppid() != parent:
                return
            continue
        piece = os.read(0, 1 << 16)
        if not piece:
            return
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            number, path, media_type, content_encoding = json.loads(line)
            yield number, path, media_type, content_encoding


def _write(descriptor: int, answer: str) -> None:
    line = " ".join(answer.split("\n")).encode("ascii", "replace") + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]


def _limit(orders: Orders, base: int) -> None:
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_FSIZE, orders.max_size)
    if base:
        _set(resource.RLIMIT_AS, base + orders.max_memory)


def _limit_cpu(timeout: float) -> None:
    """CPU time until the kernel ends this process, should the pool not look after it in time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _set(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + timeout) + 1)


def _set(what: int, value: int) -> None:
    """Sets a soft limit, within the hard one; a system that does not know it does without."""
    _, hard = resource.getrlimit(what)
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(what, (soft, hard))


def _mapped() -> int:
    """Bytes of address space in use; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
