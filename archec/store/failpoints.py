"""Named steps at which a test can kill the process, as a power cut or ``kill -9`` would.

Nothing is armed unless a test has called :func:`arm`; an unarmed fail point costs one lookup in an empty map.
"""

from __future__ import annotations

import os
import signal

_armed: dict[str, int] = {}
"""Number of hits that each armed fail point still survives; process-wide."""
_signals: dict[str, int] = {}


def arm(name: str, times: int = 1, number: int = signal.SIGKILL) -> None:
    """Makes the ``times``-th ``hit(name)`` from now on kill this process, or send it another signal."""
    if times < 1:
        raise ValueError(f"a fail point is hit once or more, not {times} times")
    _armed[name], _signals[name] = times, number


def armed(name: str) -> bool:
    """Whether the next ``hit(name)`` kills, for a step that is to be killed in the middle."""
    return _armed.get(name) == 1


def hit(name: str) -> None:
    """Kills the process with the signal of this fail point, if it is armed and its count is reached."""
    if name in _armed:
        _armed[name] -= 1
        if _armed[name] == 0:
            os.kill(os.getpid(), _signals[name])
