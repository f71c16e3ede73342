"""Killing a child process at a fail point."""

from __future__ import annotations

import os
from pathlib import Path

_TESTS = Path(__file__).parent


def killed_at(point: str) -> dict[str, str]:
    """What a child's environment needs in order to die at ``name``, or at its N-th hit: ``name:N``.

    A ``sitecustomize`` on its PYTHONPATH arms the fail point; archec itself reads no such variable.
    """
    path = os.pathsep.join(map(str, (_TESTS / "hooks", _TESTS.parent)))
    return {"PYTHONPATH": path, "ARCHEC_TEST_FAILPOINT": point}
