"""Line ends: CR, LF, CR LF and CR CR LF, alone or mixed, all become LF."""

from __future__ import annotations

import re

__all__ = ["count_lines", "with_lf"]

_RETURNS = re.compile(rb"\r+\n?")


def with_lf(data: bytes) -> bytes:
    """``data`` with LF as its only line end.

    Any number of CRs before an LF are one line end with it: CR CR LF comes from writing CR LF in
    text mode a second time. Every other CR is a line end of its own. Idempotent, since no CR is left.
    """
    if b"\r" not in data:
        return data
    if b"\n" not in data:
        return data.replace(b"\r", b"\n")
    data = data.replace(b"\r\n", b"\n")
    if b"\r" not in data:
        return data
    data = data.replace(b"\r\n", b"\n")
    if b"\r\n" not in data:
        return data.replace(b"\r", b"\n")
    return _RETURNS.sub(_line_ends, data)


def count_lines(data: bytes) -> int:
    """The number of line ends in ``data``."""
    return with_lf(data).count(b"\n")


def _line_ends(match: re.Match[bytes]) -> bytes:
    run = match[0]
    return b"\n" if run.endswith(b"\n") else b"\n" * len(run)
