"""Live progress: a bar on a terminal."""

from __future__ import annotations

import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Live"]


class Live:
    """A bar with rate and time left."""

    def __init__(self, stream: TextIO) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>10}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(file=stream),
            refresh_per_second=4,
        )
        self._progress.start()
        self._task: int | None = None
        self._began = 0.0
        self._drawn = 0.0

    def phase(self, name: str, total: int | None) -> None:
        """A new bar."""
        self._end_bar()
        self._began = time.monotonic()
        self._task = self._progress.add_task(name, total=total, rate="", note="")

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        """Moves the bar, at most twenty times a second."""
        now = time.monotonic()
        if self._task is None or now - self._drawn < 0.05:
            return
        self._drawn = now
        rate = f"{done / max(now - self._began, 1e-9):,.0f}/s"
        self._progress.update(self._task, completed=done, rate=rate, note=note)  # type: ignore[arg-type]
        if total is not None:
            self._progress.update(self._task, total=total)  # type: ignore[arg-type]

    def close(self) -> None:
        """Leaves the last bar standing."""
        self._end_bar()
        self._progress.stop()

    def _end_bar(self) -> None:
        if self._task is not None:
            self._progress.stop_task(self._task)  # type: ignore[arg-type]
