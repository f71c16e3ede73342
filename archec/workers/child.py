"""The code of a worker process: its start, the loop that processes the items of a pool, and the messages between the
two: a length, followed by MessagePack.

Pickle is not used, so a worker that is compromised by a file that it reads can send wrong values, but cannot run code
in its parent.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import math
import os
import resource
import select
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, get_type_hints

import msgspec

from archec.errors import ArchecError

LENGTH = 4
MOST = 1 << 29
"""Largest valid message in bytes, far more than any that is sent."""
READY, BROKEN, BEAT, RETIRED, ANSWER, ERROR, MEMORY, FAULT = (bytes((code,)) for code in b"rb.xaemf")
"""First byte of a message to a pool: ready for items; failed to start, with the reason; heartbeat; exiting to release
memory; an answer; an ArchecError; out of memory; another exception, with its traceback."""

_BEHIND = 5
"""Niceness of workers relative to their parent, whose work limits the speed of a run."""
RARE_COLLECTIONS = (100_000, 50, 100)
"""Thresholds of the garbage collector, for work that creates many objects but few cycles."""


class Nonsense(Exception):
    """The received bytes are not a valid message."""


def _plain(value: object) -> bytes:
    if isinstance(value, PurePath):
        return os.fsencode(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be sent to a worker")


def _path(kind: type, value: Any) -> Path:
    if issubclass(kind, PurePath):
        return Path(os.fsdecode(value))
    raise NotImplementedError(f"{kind.__name__} cannot be received from a worker")


encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
"""Encodes a value as MessagePack. Paths are encoded as bytes, since they may not be UTF-8."""


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Returns a decoder for values of type ``kind`` that :func:`encode` has encoded. It raises msgspec.MsgspecError for
    invalid input."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_path)


def frame(body: bytes) -> bytes:
    """Adds the length to a message."""
    return len(body).to_bytes(LENGTH, "big") + body


class Inbox:
    """Assembles messages from received bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Adds received bytes and yields the messages that they complete. Raises :class:`Nonsense`."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= LENGTH:
            size = int.from_bytes(buffer[start : start + LENGTH], "big")
            if size > MOST:
                raise Nonsense
            end = start + LENGTH + size
            if len(buffer) < end:
                break
            yield bytes(memoryview(buffer)[start + LENGTH : end])
            start = end
        del buffer[:start]


def receive(pipe: socket.socket) -> bytes | None:
    """Reads the next message from a blocking socket. Returns None if the other end is closed."""
    length = _exactly(pipe, LENGTH)
    return None if length is None else _exactly(pipe, int.from_bytes(length, "big"))


def _exactly(pipe: socket.socket, size: int) -> bytes | None:
    """Reads exactly ``size`` bytes; None if the other end is closed before that. MSG_WAITALL waits in the kernel, which
    takes the interpreter lock only once."""
    data = b""
    while len(data) < size:
        try:
            piece = pipe.recv(size - len(data), socket.MSG_WAITALL)
        except OSError:
            return None
        if not piece:
            return None
        data += piece
    return data


@contextmanager
def rare_collections() -> Iterator[None]:
    """Sets the same thresholds within the block, for a run: collections at the default ones take a tenth of its
    time."""
    before = gc.get_threshold()
    gc.set_threshold(*RARE_COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Limits(NamedTuple):
    """Limits of a worker; 0 means none.

    ``memory`` is the address space in bytes beyond what is mapped when the worker is ready, ``file_size`` the size in
    bytes of the largest file that it may write, ``seconds`` the maximum time for one item, both elapsed and CPU time.
    """

    memory: int = 0
    file_size: int = 0
    seconds: float = 0.0


def main(descriptor: int) -> None:
    """Calls the function in the first message, with the socket and the arguments in that message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = socket.socket(fileno=descriptor)
    message = receive(pipe)
    if message is not None:
        function, arguments = decoder(tuple[str, msgspec.Raw]).decode(message)
        call(function, arguments, pipe)


def call(function: str, arguments: msgspec.Raw, *first: Any) -> Any:
    """Calls ``module:name`` with ``first`` and the arguments, which are decoded according to its annotations."""
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    kinds = tuple(_parameters(found)[len(first) :])
    return found(*first, *decoder(tuple.__class_getitem__(kinds)).decode(arguments))


def work_off(pipe: socket.socket, function: str, arguments: msgspec.Raw, limits: Limits, beat: float) -> None:
    """Processes items in order and sends an answer for each, with heartbeats in between if nothing was received for
    ``beat`` seconds.

    ``function`` is called with ``arguments`` and returns the function that is called for each item.
    """
    pool = _Parent(pipe)
    items: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(pipe, pool, items, beat), daemon=True).start()
    os.nice(_BEHIND)
    gc.set_threshold(*RARE_COLLECTIONS)
    try:
        work: Callable[[Any], Any] = call(function, arguments)
        decode = decoder(_parameters(work)[0]).decode
    except Exception as error:  # noqa: BLE001 - the pool reports it
        pool.send(BROKEN, "".join(traceback.format_exception_only(error)).encode("utf-8", "replace"))
        return
    base = in_use()
    set_limit(resource.RLIMIT_CORE, 0)
    if limits.file_size:
        set_limit(resource.RLIMIT_FSIZE, limits.file_size)
    if limits.memory and base:
        set_limit(resource.RLIMIT_AS, base + limits.memory)
    pool.send(READY)
    while True:
        message = items.get()
        if limits.seconds:
            _limit_cpu(limits.seconds)
        kind, body = _answer(work, decode, message)
        pool.send(kind, body)
        if kind == MEMORY or (limits.memory and in_use() - base > limits.memory // 2):
            pool.send(RETIRED)
            return


class _Parent:
    """Sends messages to the pool, from two threads: the one that works, and the one that sends heartbeats."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._lock = Lock()

    def send(self, kind: bytes, body: bytes = b"") -> None:
        with self._lock, suppress(OSError):  # if the pool is gone, the listening thread ends this process
            self._pipe.sendall(frame(kind + body))

    def beat(self) -> None:
        """Sends a heartbeat if that is possible without blocking: while this thread blocks it does not receive, which
        the pool may be waiting for."""
        if self._lock.acquire(blocking=False):
            with suppress(OSError):
                self._pipe.send(frame(BEAT), socket.MSG_DONTWAIT)
            self._lock.release()


def _listen(pipe: socket.socket, pool: _Parent, items: SimpleQueue[bytes], beat: float) -> None:
    """Receives items while others are processed, so that the pool can always send. Kills this process when the pool is
    gone."""
    while True:
        if not select.select([pipe], [], [], beat)[0]:
            pool.beat()
            continue
        message = receive(pipe)
        if message is None:
            os.killpg(0, signal.SIGKILL)  # this process and those that it has started
        else:
            items.put(message)


def _answer(work: Callable[[Any], Any], decode: Callable[[bytes], Any], message: bytes) -> tuple[bytes, bytes]:
    try:
        return ANSWER, encode(work(decode(message)))
    except MemoryError:
        return MEMORY, b""
    except ArchecError as error:
        name = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == ArchecError.__module__)
        text = error.message.encode("utf-8", "backslashreplace").decode()  # it may contain file names
        return ERROR, encode((name, text, error.hint))
    except Exception:  # noqa: BLE001 - the parent raises it
        return FAULT, traceback.format_exc().encode("utf-8", "replace")


def _parameters(function: Callable[..., Any]) -> list[Any]:
    """The types of a function's parameters."""
    hints = get_type_hints(function)
    return [hints[name] for name in inspect.signature(function).parameters]


def _limit_cpu(seconds: float) -> None:
    """Lets the kernel kill this process after ``seconds`` of CPU time, in case the pool does not."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    set_limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds) + 1)


def set_limit(what: int, value: int) -> None:
    """Sets a soft limit, at most the hard one. Ignored on systems that do not support it."""
    _, hard = resource.getrlimit(what)
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(what, (soft, hard))


def in_use(column: int = 0) -> int:
    """The bytes in use according to a column of ``/proc/self/statm``: the first is the address space, that with the
    number 5 data and stack. 0 if unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[column]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
