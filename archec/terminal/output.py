"""Text on stdout and stderr, safe to show whatever it contains, and cut or folded to the terminal's width."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import time

import click

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_MIN_WIDTH = 12
_FLUSH_AFTER = 0.05
"""Seconds."""


def shown(text: object) -> str:
    """Text with control characters, and those that change the direction of writing, escaped."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))


def json_line(value: object) -> str:
    """A value as JSON on one line, readable on a terminal; what :func:`shown` escapes is escaped."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def echo(line: str) -> None:
    """One line on stdout, made safe to show, as UTF-8 whatever the locale."""
    click.echo(shown(line).encode("utf-8", "backslashreplace"))


def echo_json(value: object) -> None:
    """One JSON value on one line of stdout."""
    click.echo(json_line(value).encode("utf-8", "backslashreplace"))


def note(text: object) -> None:
    """One line on stderr, for people."""
    click.echo(f"archec: {shown(text)}", err=True)


def terminal_width() -> int | None:
    """The columns of the terminal on stdout, None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit(text: str, width: int | None, used: int = 0) -> str:
    """Text made safe to show and cut to what ``used`` columns leave of ``width``; not cut if there is no width."""
    text = shown(text)
    if width is None or len(text) <= max(width - used, _MIN_WIDTH):
        return text
    return text[: max(width - used, _MIN_WIDTH) - 1] + "…"


def fold(text: str, width: int | None, indent: int) -> list[str]:
    """Text made safe to show, in lines of at most ``width`` columns, all but the first one indented.

    Words such as ids are never broken; without a width there is one line.
    """
    text = shown(text)
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(
        text, max(width, indent + _MIN_WIDTH), subsequent_indent=" " * indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


class LineWriter:
    """Writes many lines to stdout, as UTF-8 whatever the locale: the first is flushed at once, later ones at most a
    twentieth of a second late while more are coming. ``any``: there was one."""

    def __init__(self) -> None:
        self._out, self._flushed = sys.stdout.buffer, 0.0
        self.any = False

    def text(self, line: str) -> None:
        """One line; the caller has made it safe to show."""
        self.any = True
        self._out.write(line.encode("utf-8", "backslashreplace") + b"\n")
        now = time.monotonic()
        if now - self._flushed > _FLUSH_AFTER:
            self._flushed = now
            self._out.flush()

    def json(self, value: object) -> None:
        """One line of JSON."""
        self.text(json_line(value))
