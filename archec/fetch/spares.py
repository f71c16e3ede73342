"""Worker processes that are started before it is known what they are to do.

Half of what a short run takes is programs getting ready; so this module imports little, and can be used first.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from types import TracebackType
from typing import NamedTuple

from archec.errors import ArchecError
from archec.fetch.twins import Twin, adopting, request_twin

__all__ = ["Spare", "Spares", "new_spare"]

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); sys.modules['httpx._main'] = None; "
    "from archec.fetch.worker import main; main(int(sys.argv[1]))"
)
"""httpx's own command line stays out of a worker: it would bring in rich, click and pygments for nothing."""


class Spare(NamedTuple):
    """A worker process that has no orders yet, and our end of its socket; it leaves when that is closed."""

    socket: socket.socket
    process: subprocess.Popen[bytes] | Twin


class Spares:
    """Worker processes without orders; a context manager that ends those that nobody took."""

    def __init__(self, count: int) -> None:
        self._spares: list[Spare] = []
        self.fill(count)

    def fill(self, count: int) -> None:
        """Sees to it that there are ``count`` of them: starts what is missing, ends what is too much.

        All but the first are twins of it, where the system allows that.
        """
        while len(self._spares) < count:
            self._spares.append(self._twin() or new_spare())
        while len(self._spares) > count:
            _end(self._spares.pop())

    def take(self) -> Spare | None:
        """One of them, for good; None where there is none left. A twin is waited for until it is there."""
        while self._spares:
            spare = self._spares.pop()
            there = spare.process.pid
            if not any(isinstance(other.process, Twin) for other in self._spares):
                adopting(False)
            if there:
                return spare
            _end(spare)
        return None

    def _twin(self) -> Spare | None:
        if not self._spares or not adopting(True):
            return None
        try:
            return Spare(*request_twin(self._spares[0].socket))
        except OSError:
            return None

    def __enter__(self) -> Spares:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fill(0)
        adopting(False)


def new_spare() -> Spare:
    """Starts one; raises ArchecError where the system lets no process be started."""
    try:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                return Spare(ours, _spawn(theirs))
            except BaseException:
                ours.close()
                raise
    except OSError as error:
        raise ArchecError(
            f"a process for fetching cannot be started: {error.strerror}", hint="see 'ulimit -u' and 'ulimit -n'"
        ) from error


def _end(spare: Spare) -> None:
    spare.socket.close()
    spare.process.kill()
    spare.process.wait()


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Starts the process with SIGINT blocked from its first moment, so that Ctrl-C finds it quiet.

    ``-I``: what lies in the working directory, a ``json.py`` for one, is none of its modules.
    """
    number = theirs.fileno()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT, str(number), json.dumps([os.path.abspath(path) for path in sys.path])],
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
