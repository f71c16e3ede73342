"""Progress on stderr: a live bar on a terminal, otherwise one line per minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from archec.progress import Meter
from archec.terminal.output import unwatched, watched

if TYPE_CHECKING:
    from rich.progress import TaskID

_MINUTE = 60.0
_REDRAW = 0.05
"""Minimum number of seconds between two changes of the bar."""
_WIDE = 100
"""Minimum number of columns for a bar."""


@contextmanager
def meter_for(stream: TextIO | None = None) -> Iterator[Meter]:
    """Yields a meter for ``stream`` (default: stderr), which is closed at the end of the block."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield LogMeter(stream)
        return
    meter = BarMeter(unwatched(stream))
    with watched(meter.close):
        try:
            yield meter
        finally:
            meter.close()


class LogMeter(Meter):
    """Writes one line a minute, for logs."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._name = ""
        self._total: int | None = None
        self._began = self._written = clock()

    def phase(self, name: str, total: int | None) -> None:
        self._name, self._total = name, total
        self._began = self._written = self._clock()

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        now = self._clock()
        if total is not None:
            self._total = total
        if now - self._written < _MINUTE:
            return
        self._written = now
        rate = done / max(now - self._began, 1e-9)
        line = f"{self._name}: {done:,}"
        if self._total:
            line += f" of {self._total:,}, {rate:,.0f}/s"
            if rate > 0:
                line += f", about {max(self._total - done, 0) / rate:,.0f} s left"
        else:
            line += f", {rate:,.0f}/s"
        self._stream.write(f"archec: {line}{', ' + note if note else ''}\n")
        self._stream.flush()


class BarMeter(Meter):
    """Shows counts, rate and time left, on a wide terminal with a bar. A note that is too long is truncated.

    It disappears at the end of its phase, and while other output is written to the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        # Imported here: rich is slow to import, and under cron there is no bar.
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        console = Console(file=stream)
        whole = Column(no_wrap=True)
        self._escape = escape
        self._progress = Progress(
            TextColumn("{task.description}", table_column=whole),
            *([BarColumn(bar_width=20)] if console.width >= _WIDE else []),
            TextColumn("{task.fields[count]}", table_column=whole),
            TextColumn("{task.fields[rate]}", table_column=whole),
            TimeRemainingColumn(table_column=whole),
            TextColumn("{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            console=console,
            refresh_per_second=4,
            expand=True,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._is_shown = False
        self._task: TaskID | None = None
        self._total: int | None = None
        self._began = self._drawn = 0.0

    def phase(self, name: str, total: int | None) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._began = time.monotonic()
        self._total = total
        self._task = self._progress.add_task(name, total=total, count="", rate="", note="")
        self._show()

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        now = time.monotonic()
        if self._task is None or now - self._drawn < _REDRAW:
            return
        self._drawn = now
        rate = f"{done / max(now - self._began, 1e-9):,.0f}/s"
        self._total = self._total if total is None else total
        count = f"{done:,}" if self._total is None else f"{done:,} of {self._total:,}"
        self._progress.update(
            self._task, total=self._total, completed=done, count=count, rate=rate, note=self._escape(note)
        )
        self._show()

    def close(self) -> None:
        """Removes the bar from the terminal until there is progress again."""
        if self._is_shown:
            self._is_shown = False
            self._progress.stop()

    def _show(self) -> None:
        if not self._is_shown:
            self._is_shown = True
            self._progress.start()
