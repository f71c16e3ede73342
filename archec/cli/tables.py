"""Lines for terminals: titles are cut to what fits its width, and nothing is cut where stdout is no terminal."""

from __future__ import annotations

import json
import shutil
import sys
import time

from archec.cli.output import shown

__all__ = ["Lines", "fit", "terminal_width"]

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


class Lines:
    """Lines of stdout, as UTF-8 whatever the locale: the first at once, the others a twentieth of a second later at
    most while more are coming."""

    def __init__(self) -> None:
        self._out, self._flushed = sys.stdout.buffer, 0.0

    def text(self, line: str) -> None:
        """One line."""
        self._out.write(line.encode("utf-8", "backslashreplace") + b"\n")
        now = time.monotonic()
        if now - self._flushed > _AGE:
            self._flushed = now
            self._out.flush()

    def json(self, value: object) -> None:
        """One line of JSON."""
        self.text(json.dumps(value, ensure_ascii=False))
