"""Killing a child process at a fail point."""

from __future__ import annotations

import os
from pathlib import Path

_TESTS = Path(__file__).parent
_HOOKED = os.pathsep.join(map(str, (_TESTS / "hooks", _TESTS.parent)))


def killed_at(point: str) -> dict[str, str]:
    """What a child's environment needs in order to die at ``name``, or at its N-th hit: ``name:N``; by SIGKILL, or by
    another signal: ``name:N:SIGNAL``.

    A ``sitecustomize`` on its PYTHONPATH arms the fail point; archec itself reads no such variable.
    """
    return {"PYTHONPATH": _HOOKED, "ARCHEC_TEST_FAILPOINT": point}


def clock_ahead(seconds: float) -> dict[str, str]:
    """What a child's environment needs so that its clock is ahead by so much."""
    return {"PYTHONPATH": _HOOKED, "ARCHEC_TEST_CLOCK": str(seconds)}
