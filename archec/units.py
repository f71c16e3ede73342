"""Parses sizes, durations and shares that operators write (``500MB``, ``2h30m``, ``5%``); formats numbers for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from archec.errors import UsageError

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", re.I)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|sec|m|min|h|d|w)", re.I)
_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_size(text: str | int) -> int:
    """Bytes from ``2MB`` (10^6), ``2MiB`` (2^20), ``2000`` or a number. Raises UsageError."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise UsageError(f"{text!r} is not a size", hint="write 500000, 500kB, 20MB, 2GiB")
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def parse_duration(text: str | int | float) -> float:
    """Seconds from ``90s``, ``1h30m``, ``7d``, ``250ms`` or 0 (without a unit). Raises UsageError."""
    bare = str(text).strip().replace(" ", "")
    if re.fullmatch(r"0+(\.0+)?", bare):
        return 0.0
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", bare):
        raise UsageError(f"{text!r} is a duration without a unit", hint=f"write {bare}s, {bare}m, {bare}h or {bare}d")
    if not bare or _PART.sub("", bare):
        raise UsageError(f"{text!r} is not a duration", hint="write 90s, 15m, 2h30m, 7d")
    return sum(float(n) * _SECONDS[unit.lower()] for n, unit in _PART.findall(bare))


def parse_share(text: str | int | float) -> float:
    """A share between 0 and 1 from ``5%`` or ``0.05``. Raises UsageError."""
    bare = str(text).strip()
    try:
        share = float(bare[:-1]) / 100 if bare.endswith("%") else float(bare)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1 or isinstance(text, bool):
        raise UsageError(f"{text!r} is not a share", hint="write 5% or 0.05")
    return share


def counted(number: int, one: str, many: str = "") -> str:
    """``1 file``, ``1,234 files``; ``many`` is the plural if it is not ``one`` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(counts: Mapping[str, int], none: str = "none") -> str:
    """``{"new": 1234, "held_back": 2, "lost": 0}`` -> ``"1,234 new, 2 held back"``; ``none`` if all are 0."""
    return ", ".join(f"{count:,} {word.replace('_', ' ')}" for word, count in counts.items() if count) or none


def human_size(count: int) -> str:
    """``1234567`` -> ``"1.2 MB"``."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def human_duration(seconds: float) -> str:
    """``3725`` -> ``"1h 02m"``; two units at most."""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"
