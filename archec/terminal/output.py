"""Output to stdout and stderr: makes text safe to show, and folds it to the terminal's width.

A failure to write to stdout is an error with a message; a failure to write to stderr is ignored, because it cannot be
reported.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO, TypeVar

import click

from archec.errors import ArchecError, UsageError

_T = TypeVar("_T")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_LOOK_AT = 1 << 16
_FIELD = re.compile(r"\S+(?: \S+)*")
_GLUE = "\0"
_MIN_WIDTH = 12
_FLUSH_AFTER = 0.05
"""Seconds."""


def shown(text: object) -> str:
    """Escapes control characters, line separators and directional formatting characters."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))


def json_line(value: object) -> str:
    """Encodes a value as JSON on one line, with the characters escaped that :func:`shown` escapes."""
    return escaped_json(json.dumps(value, ensure_ascii=False))


def escaped_json(text: str) -> str:
    """Escapes the characters that :func:`shown` escapes in JSON on one line."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def echo(line: str, indent: int | None = None) -> None:
    """Prints one line on stdout, made safe to show and folded (:func:`fold`), in UTF-8 for any locale."""
    for part in fold(line, terminal_width(), indent):
        click.echo(part.encode("utf-8", "backslashreplace"))


def echo_json(value: object) -> None:
    """Prints a value as JSON on one line of stdout."""
    click.echo(json_line(value).encode("utf-8", "backslashreplace"))


def show(value: object, *lines: str, as_json: bool, indent: int | None = None) -> None:
    """Prints a result on stdout: ``value`` as JSON, or else ``lines``."""
    if as_json:
        echo_json(value)
        return
    for line in lines:
        echo(line, indent)


def note(text: object, prefix: str = "archec: ") -> None:
    """Prints one line on stderr, made safe to show and folded (:func:`fold`)."""
    for part in fold(f"{prefix}{text}", terminal_width(sys.stderr), len(prefix) or None):
        click.echo(part, err=True)


def terminal_width(stream: TextIO | None = None) -> int | None:
    """The columns of the terminal, if the stream (default: stdout) is one; else None."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else None


def fold(text: str, width: int | None, indent: int | None = None) -> list[str]:
    """Makes text safe to show and folds it into lines of at most ``width`` columns. All lines but the first have an
    indent of ``indent`` columns, by default four more than the first.

    Lines are preferably broken between fields (separated by two spaces). Words such as ids are never broken, so that
    they can be copied. Without a width the result is one line.
    """
    text = shown(text)
    if width is None or len(text) <= width:
        return [text]
    bare = text.lstrip()
    first = len(text) - len(bare)
    further = first + 4 if indent is None else indent
    room = max(width - further, _MIN_WIDTH)
    glued = _FIELD.sub(lambda field: field[0].replace(" ", _GLUE) if len(field[0]) <= room else field[0], bare)
    parts = textwrap.wrap(
        glued, further + room, initial_indent=" " * first, subsequent_indent=" " * further,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [part.replace(_GLUE, " ") for part in parts]


class LineWriter:
    """Writes many lines to stdout, in UTF-8 for any locale. The first is flushed immediately, later ones when a
    twentieth of a second has passed since the last flush. ``any``: whether a line was written."""

    def __init__(self) -> None:
        self._out, self._flushed, self._width = sys.stdout.buffer, 0.0, terminal_width()
        self.any = False

    def text(self, line: str) -> None:
        """Writes a line, made safe to show and folded."""
        for part in fold(line, self._width):
            self.raw(part)

    def raw(self, line: str) -> None:
        """Writes a line as it is; the caller must have made it safe to show."""
        self.any = True
        self._out.write(line.encode("utf-8", "backslashreplace") + b"\n")
        now = time.monotonic()
        if now - self._flushed > _FLUSH_AFTER:
            self._flushed = now
            self._out.flush()

    def json(self, value: object) -> None:
        self.raw(json_line(value))

    def show(self, value: object, *lines: str, as_json: bool) -> None:
        """Writes a row: ``value`` as JSON, or else ``lines``."""
        if as_json:
            self.json(value)
            return
        for line in lines:
            self.text(line)


def show_all(
    rows: Iterable[_T],
    value: Callable[[_T], object],
    lines: Callable[[_T], Iterable[str]],
    *,
    as_json: bool,
    none: str = "",
) -> bool:
    """Prints each row as soon as it is there: its ``value`` as JSON, or else its ``lines``. If there is none, notes
    ``none`` on stderr, but not with JSON. Returns whether there was one."""
    out = LineWriter()
    for row in rows:
        if as_json:
            out.json(value(row))
        else:
            for line in lines(row):
                out.text(line)
    if none and not (out.any or as_json):
        note(none)
    return out.any


class Writable(Protocol):
    """A stream to which bytes can be written."""

    def write(self, data: bytes, /) -> int: ...


class TextOnly:
    """Writes text to a terminal. Raises UsageError, and writes nothing, if the first bytes are binary, since these may
    change the state of the terminal."""

    def __init__(self, target: Writable) -> None:
        self._target, self._checked = target, False

    def write(self, data: bytes, /) -> int:
        if not self._checked and _BINARY.search(data[:_LOOK_AT]):
            raise UsageError("this is binary, and stdout is a terminal", hint="use -o FILE, or -o - to write it anyway")
        self._checked = True
        return self._target.write(data)


class ReaderGone(BrokenPipeError):
    """The reader of stdout has closed the pipe, which is not an error. Other broken pipes are."""


def guard() -> None:
    """Replaces stdout and stderr of the process with guarded streams.

    A closed descriptor (``>&-``) is first opened on /dev/null: otherwise the next opened file, possibly the catalogue,
    would get its number. A closed stdin is empty. Streams that have already been replaced are not changed.
    """
    for number in (0, 1, 2):
        _fill(number)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(_GuardedStream(1, closed=sys.stdout is None), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(_GuardedStream(2, closed=sys.stderr is None), sys.stderr)


@contextmanager
def watched(before: Callable[[], None]) -> Iterator[None]:
    """Calls ``before`` whenever something is about to be written to the guarded stdout or stderr."""
    raws = [getattr(getattr(stream, "buffer", None), "raw", None) for stream in (sys.stdout, sys.stderr)]
    guarded = [raw for raw in raws if isinstance(raw, _GuardedStream)]
    for raw in guarded:
        raw.before = before
    try:
        yield
    finally:
        for raw in guarded:
            raw.before = None


def unwatched(stream: TextIO) -> TextIO:
    """Returns a new stream for the descriptor of a guarded stream; any other stream is returned itself."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return _stream(_GuardedStream(raw.fileno(), closed=False), stream) if isinstance(raw, _GuardedStream) else stream


class _GuardedStream(io.RawIOBase):
    """A raw stream for writing to a descriptor. After its first failure it discards everything; that failure is raised
    if the stream is stdout, and ignored if it is stderr, as it cannot be reported."""

    def __init__(self, number: int, *, closed: bool) -> None:
        super().__init__()
        self._number, self._failed, self._was_closed = number, False, closed
        self.before: Callable[[], None] | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def write(self, data: Any, /) -> int:
        if self.before is not None:
            self.before()
        if not self._failed:
            try:
                if self._was_closed:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                return os.write(self._number, data)
            except OSError as error:
                self._failed = True
                if self._number == 1 and isinstance(error, BrokenPipeError):
                    raise ReaderGone(error.errno, error.strerror) from error
                if self._number == 1:
                    raise ArchecError(f"cannot write to stdout: {error.strerror}") from error
        return memoryview(data).nbytes


def _stream(raw: _GuardedStream, like: TextIO | None) -> io.TextIOWrapper:
    """Creates a text stream for ``raw``, with the encoding of the stream that it replaces."""
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
