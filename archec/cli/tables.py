"""Lines for terminals: titles are cut to what fits its width, and nothing is cut where stdout is no terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time

from archec.cli.output import json_line, shown

__all__ = ["Lines", "fit", "fold", "terminal_width"]

_LEAST = 12
_AGE = 0.05
"""Seconds that a line may wait for others."""


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is, None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit(text: str, width: int | None, used: int = 0) -> str:
    """Text that is safe to show, cut to what ``used`` columns leave of ``width``; whole where there is no width."""
    text = shown(text)
    if width is None or len(text) <= max(width - used, _LEAST):
        return text
    return text[: max(width - used, _LEAST) - 1] + "…"


def fold(text: str, width: int | None, indent: int) -> list[str]:
    """Text that is safe to show, in lines of at most ``width`` columns, all but the first one indented.

    What has no blank in it, such as an id, is never parted; where there is no width there is one line.
    """
    text = shown(text)
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(
        text, max(width, indent + _LEAST), subsequent_indent=" " * indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


class Lines:
    """Lines of stdout, as UTF-8 whatever the locale: the first at once, the others a twentieth of a second later at
    most while more are coming. ``any``: there was one."""

    def __init__(self) -> None:
        self._out, self._flushed = sys.stdout.buffer, 0.0
        self.any = False

    def text(self, line: str) -> None:
        """One line."""
        self.any = True
        self._out.write(line.encode("utf-8", "backslashreplace") + b"\n")
        now = time.monotonic()
        if now - self._flushed > _AGE:
            self._flushed = now
            self._out.flush()

    def json(self, value: object) -> None:
        """One line of JSON."""
        self.text(json_line(value))
