"""Catalogue URLs: showing them without their secrets."""

from __future__ import annotations

import re

__all__ = ["redact"]

_USERINFO = re.compile(r"//.*@", re.S)
_SECRET_OPTION = re.compile(r"([^?&=;]*password[^?&=;]*=)[^&;]*", re.I)


def redact(url: str) -> str:
    """``url`` fit for a message: what stands before its last ``@`` and the values of options whose
    name speaks of a password are cut out. It errs on the side of cutting too much."""
    return _SECRET_OPTION.sub(r"\1***", _USERINFO.sub("//***@", url))
