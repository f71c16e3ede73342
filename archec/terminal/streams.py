"""stdout and stderr of a command: a failure to write to stdout is an error with a message, a failure to write to stderr
is ignored, for it cannot be reported."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from archec.errors import StdoutFailed


class ReaderGone(BrokenPipeError):
    """Nobody reads stdout any more, which is no error. Other broken pipes are."""


def guard() -> None:
    """Replaces the process's own streams by guarded ones.

    A closed descriptor (``>&-``) is first opened on /dev/null: otherwise the next file to be opened, perhaps the
    catalogue, would get its number. Streams that have been replaced already are left alone.
    """
    for number in (0, 1, 2):
        _fill(number)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(_GuardedStdout(1, closed=sys.stdout is None), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(_GuardedStream(2, closed=sys.stderr is None), sys.stderr)


class _GuardedStream(io.RawIOBase):
    """A descriptor to write to. After its first failure it discards everything."""

    def __init__(self, number: int, *, closed: bool) -> None:
        super().__init__()
        self._number, self._failed, self._was_closed = number, False, closed

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def write(self, data: Any, /) -> int:
        if not self._failed:
            try:
                if self._was_closed:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                return os.write(self._number, data)
            except OSError as error:
                self._failed = True
                self.failed(error)
        return memoryview(data).nbytes

    def failed(self, error: OSError) -> None:
        """Called for the first failure. Ignored, as it cannot be reported."""


class _GuardedStdout(_GuardedStream):
    def failed(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):
            raise ReaderGone(error.errno, error.strerror) from error
        raise StdoutFailed(f"cannot write to stdout: {error.strerror}") from error


def _stream(raw: _GuardedStream, like: io.TextIOBase | None) -> io.TextIOWrapper:
    """A text stream over ``raw``, with the encoding of the one that it replaces."""
    encoding = getattr(like, "encoding", None) or "utf-8"
    errors = getattr(like, "errors", None) or "backslashreplace"
    quick = raw.fileno() == 2 or raw.isatty() or getattr(like, "write_through", False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=quick)


def _fill(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        spare = os.open(os.devnull, os.O_RDWR)
        if spare != number:
            os.dup2(spare, number)
            os.close(spare)
        os.set_inheritable(number, True)
