"""Worker processes that are forks of one which has imported everything, so that this is done only once.

Such a twin is a grandchild at first. For that moment this process asks Linux for the orphans among its descendants
(``PR_SET_CHILD_SUBREAPER``): then the twin is a child like any other, that can be waited for and killed by its number.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import time
from functools import cached_property

__all__ = ["Twin", "adopting", "become_twin", "request_twin"]

_PID_BYTES = 4
"""A twin's first words are its process id, big-endian."""
_NO_ORDERS = bytes(4)
_PATIENCE = 60.0
_PR_SET_CHILD_SUBREAPER = 36


def adopting(wanted: bool) -> bool:
    """Becomes the parent of orphaned descendants, or is it no longer; whether the system knows of that."""
    try:
        if wanted:
            os.close(os.pidfd_open(os.getpid()))
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False


class Twin:
    """The process at the other end of ``end``, which may not be there yet. In the shape of ``subprocess.Popen``."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._over = False

    @cached_property
    def pid(self) -> int:
        """The process id, which is waited for; 0 where it came to nothing."""
        said = b""
        before = self._end.gettimeout()
        try:
            self._end.settimeout(_PATIENCE)
            while len(said) < _PID_BYTES and (more := self._end.recv(_PID_BYTES - len(said))):
                said += more
        except OSError:
            return 0
        finally:
            if self._end.fileno() >= 0:
                self._end.settimeout(before)
        return int.from_bytes(said, "big") if len(said) == _PID_BYTES else 0

    def kill(self) -> None:
        """Ends it by force."""
        if self.pid and not self._over:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> None:
        """Waits for its end; raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        if self._over or not self.pid:
            return
        watch = os.pidfd_open(self.pid)
        try:
            if not select.select([watch], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a fetching process", timeout or 0.0)
        finally:
            os.close(watch)
        os.waitpid(self.pid, 0)
        self._over = True


def request_twin(first: socket.socket) -> tuple[socket.socket, Twin]:
    """Asks the process behind ``first``, which has no orders yet, for a twin; our end of the twin's socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(first, [_NO_ORDERS], [theirs.fileno()])
    return ours, Twin(ours)


def become_twin(end: socket.socket, descriptor: int) -> socket.socket:
    """In the process that was asked: forks. Gives each of the two its own socket.

    The twin says who it is when it has been adopted.
    """
    between = os.fork()
    if between:
        os.close(descriptor)
        os.waitpid(between, 0)
        return end
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:
        time.sleep(0.0002)
    end.close()
    own = socket.socket(fileno=descriptor)
    try:
        own.sendall(os.getpid().to_bytes(_PID_BYTES, "big"))
    except OSError:
        raise SystemExit(0) from None  # nobody wants it any more
    return own
