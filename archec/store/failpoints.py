"""Named steps at which a test can kill the process, as a power cut or ``kill -9`` would.

Nothing is armed unless :func:`arm` was called, which only tests do: a fail point then costs one look into an empty map.
"""

from __future__ import annotations

import os
import signal

_armed: dict[str, int] = {}
"""How many hits each armed fail point still takes; process-wide, as the death that it stands for."""
_signals: dict[str, int] = {}


def arm(name: str, times: int = 1, number: int = signal.SIGKILL) -> None:
    """Makes the ``times``-th ``hit(name)`` from now on kill this process, or send it another signal."""
    if times < 1:
        raise ValueError(f"a fail point is hit once or more, not {times} times")
    _armed[name], _signals[name] = times, number


def armed(name: str) -> bool:
    """Whether the next ``hit(name)`` kills; for a step that has to stop half-way to be interesting."""
    return _armed.get(name) == 1


def hit(name: str) -> None:
    """Dies here, by the signal of this fail point, if it is armed and its time has come."""
    if name in _armed:
        _armed[name] -= 1
        if _armed[name] == 0:
            os.kill(os.getpid(), _signals[name])
