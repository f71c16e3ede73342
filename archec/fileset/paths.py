"""Safe paths: relative paths for the files of a manifest that every file system supports. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]) *(?:\..*)?", re.I)
"""Names of devices of Windows."""
_MEANT = re.compile(r"-$|[~$]|%.+%")
"""What a path must not begin with: ``md5sum -c`` takes it for stdin, readers of data packages for a home or a
variable."""
_END = (
    ". \t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What a name must not end with. Validators of bags remove all kinds of blanks, file systems dots and spaces."""
_DRIVE = re.compile("[A-Za-z]:")
_ESCAPED = re.compile(r"\\ud[89a-f][0-9a-f]{2}")
"""A lone surrogate, as ``fields.clean`` escapes it."""
_BAD = re.compile(
    r'[\x00-\x1f\x7f-\x9f<>:"|?*\\\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]|%(?=0[AaDd])'
)
"""Characters that are replaced; also the percent sign of ``%0A`` and ``%0D``, line ends for readers of bags."""
_LONGEST = 255
"""Bytes of one name."""
_LONGEST_PATH = 3000
"""Bytes of a path, which leaves space for that of the directory above it."""


class SafePath(NamedTuple):
    """``path`` is unique among the files of a manifest and stays below the directory. ``problem`` says why it differs
    from the platform's path; it is empty if it does not."""

    path: str
    problem: str = ""


def unsafe(path: str) -> str:
    """The reason why the file with this path must not be fetched at all; empty if it may be."""
    if not path or path.endswith("/"):
        return "names no file"
    if "\0" in path:
        return "holds a NUL"
    if path.startswith("/"):
        return "is absolute"
    if "\\" in _ESCAPED.sub("", path):
        return "holds a backslash"
    if _DRIVE.match(path):
        return "begins with a drive"
    if ".." in path.split("/"):
        return "leads out of the directory"
    return ""


def safe_paths(paths: Iterable[str]) -> Iterator[SafePath]:
    """Yields the safe path of each of ``paths``, none of which may be :func:`unsafe`. Safe paths are unique, even for
    file systems that ignore case or Unicode normalisation, where each directory has one spelling, and none is a
    directory of another."""
    names = _Names()
    for path in paths:
        plain = _plain(path)
        problem = "" if plain == path else "has a name that some file systems or programs do not support"
        other, clash = names.take(plain)
        yield SafePath(path if other == path else other, clash or problem)


class _Names:
    """The paths that are taken, in the form in which they are compared."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}
        """The name of each directory, as the first path in it has it."""
        self._numbers: dict[str, int] = {}

    def take(self, path: str) -> tuple[str, str]:
        """Returns a free path, and why it is not ``path`` (empty if it is)."""
        parts, clash = path.split("/"), ""
        for depth in range(1, len(parts)):
            folded = _folded("/".join(parts[:depth]))
            if folded in self._files:
                if folded not in self._folders:
                    self._folders[folded] = self._numbered(parts[:depth], folder=True)
                parts[depth - 1] = self._folders[folded]
                folded, clash = _folded("/".join(parts[:depth])), "is in a directory that has the name of a file"
            name = self._folders.setdefault(folded, parts[depth - 1])
            if name != parts[depth - 1]:
                parts[depth - 1], clash = name, "is in a directory that another path spells differently"
        folded = _folded("/".join(parts))
        if folded in self._files or folded in self._folders:
            clash = "has the name of another" if folded in self._files else "has the name of a directory"
            parts[-1] = self._numbered(parts)
            folded = _folded("/".join(parts))
        self._files.add(folded)
        return "/".join(parts), clash

    def _numbered(self, parts: list[str], *, folder: bool = False) -> str:
        """Appends the first free number to the last part: ``name (2).txt``."""
        stem, dot, suffix = parts[-1].rpartition(".")
        if not stem:
            stem, dot, suffix = parts[-1], "", ""
        key = f"{folder}{_folded('/'.join(parts))}"
        while True:
            number = self._numbers[key] = self._numbers.get(key, 1) + 1
            name = f"{_cut(stem, 200)} ({number}){dot}{suffix}"
            folded = _folded("/".join([*parts[:-1], name]))
            if folded not in self._files and (folder or folded not in self._folders):
                return name


def _plain(path: str) -> str:
    parts = [part for part in unicodedata.normalize("NFC", path).split("/") if part not in ("", ".")]
    names = [_name(part) for part in parts] or ["_"]
    if _MEANT.match("/".join(names)):
        names[0] = _cut(f"_{names[0]}", _LONGEST)
    plain = "/".join(names)
    if len(plain.encode("utf-8", "replace")) <= _LONGEST_PATH:
        return plain
    return _cut(plain.rpartition("/")[2], _LONGEST)


def _name(part: str) -> str:
    name = _BAD.sub("_", part).rstrip(_END) or "_"
    if _RESERVED.fullmatch(name):
        name = f"_{name}"
    return _cut(name, _LONGEST)


def _cut(name: str, most: int) -> str:
    """Cuts a name to at most ``most`` bytes, and keeps its suffix."""
    if len(name.encode()) <= most:
        return name
    stem, dot, suffix = name.rpartition(".")
    end = f"{dot}{suffix}" if stem and len(suffix.encode()) <= 20 else ""
    room = most - len(end.encode())
    return name.encode()[:room].decode("utf-8", "ignore").rstrip(_END) + end


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", path).casefold())
