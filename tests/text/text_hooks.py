"""Work for the pool's tests: each file says in its own text what the worker shall do."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from archec.text.checksum import TextResult, TextTask


def obeying(max_size: int, timeout: float) -> Callable[[TextTask], TextResult]:
    """Gives :func:`obey`."""
    return obey


def obey(task: TextTask) -> TextResult:
    """Hangs, crashes, eats memory, leaves, lies, or gives the md5 of what it read."""
    text = task.path.read_text(encoding="utf-8")
    order, _, argument = text.partition(" ")
    if order == "hang":
        time.sleep(3600)
    elif order == "burn":
        while True:
            pass
    elif order == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif order == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif order == "leave":
        os._exit(0)
    elif order == "raise":
        raise KeyError(text)
    elif order == "eat":
        held = [bytearray(1 << 20) for _ in range(1 << 20)]
        return TextResult(str(len(held)))
    elif order == "print":
        os.write(1, b"0 - \n" * 100)
        os.write(2, b"noise\n")
    elif order == "lie":
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"[" * 70_000 + b"\n")
            except OSError:
                continue
    elif order == "note":
        with open(argument, "a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
        if len(Path(argument).read_text(encoding="ascii").splitlines()) == 1:
            time.sleep(3600)
    elif order == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    return TextResult(hashlib.md5(text.encode()).hexdigest())


def unknown(max_size: int, timeout: float) -> Callable[[TextTask], TextResult]:
    """Answers in words the pool does not know."""

    def answer(task: TextTask) -> TextResult:
        return TextResult(None, "whatever")

    return answer
