"""What the workers of these tests do: each item says it in its own words."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from archec.errors import StorageFull


def obeying(folder: Path) -> Callable[[str], str]:
    """Each order leaves its process id in the folder."""

    def obey(item: str) -> str:
        order, _, argument = item.partition(" ")
        times = _note(folder, item)
        if order == "sleep":
            time.sleep(float(argument))
        elif order == "burn":
            while True:
                pass
        elif order in ("kill", "stop", "stop-once", "kill-once"):
            if not order.endswith("once") or times == 1:
                os.kill(os.getpid(), signal.SIGKILL if order.startswith("kill") else signal.SIGSTOP)
        elif order == "leave":
            os._exit(0)
        elif order == "eat":
            return str(len(b"x" * 10**9))
        elif order == "full":
            raise StorageFull("no space", hint="make some")
        elif order == "raise":
            raise KeyError("of no use")
        elif order == "babble":
            for descriptor in range(3, 32):
                try:
                    os.write(descriptor, b"[" * 70_000)
                except OSError:
                    continue
        elif order == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        elif order == "child":
            process = subprocess.Popen(["sleep", "3600"])
            _note(folder, "grandchild", process.pid)
            time.sleep(3600)
        return item.upper()

    return obey


def _note(folder: Path, item: str, pid: int = 0) -> int:
    """Adds a process id to the item's file; how many are in it now."""
    with open(folder / item.partition(" ")[0], "a", encoding="ascii") as file:
        file.write(f"{pid or os.getpid()}\n")
    return len(pids_of(folder, item))


def pids_of(folder: Path, item: str) -> list[int]:
    """The processes that began an item."""
    path = folder / item.partition(" ")[0]
    text = path.read_text(encoding="ascii") if path.exists() else ""
    return [int(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def doubling() -> Callable[[bytes], bytes]:
    """Gives twice what it is given."""

    def double(item: bytes) -> bytes:
        return item * 2

    return double


def paths(root: Path) -> Callable[[Path], Path]:
    """Paths in and out."""

    def below(item: Path) -> Path:
        return root / item

    return below


def lying() -> Callable[[str], str]:
    """Answers of another type than is agreed."""

    def lie(item: str) -> str:
        return [item]  # type: ignore[return-value]

    return lie
