"""Catalogue URLs: showing them without their secrets."""

from __future__ import annotations

import re

_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.S)
_SECRET_OPTION = re.compile(r"([^?&=;]*password[^?&=;]*=)[^&;]*", re.I)


def redact(url: str) -> str:
    """``url`` fit for a message: what stands between its scheme and its last ``@``, and the values of
    options whose names speak of a password, are cut out. It errs on the side of cutting too much."""
    found = _USERINFO.match(url)
    shown = f"{found[1] or ''}***@{url[found.end() :]}" if found else url
    return _SECRET_OPTION.sub(r"\1***", shown)
