"""The vault: the folder that is exported to, laid out so that pywb takes it for one of its collections.

::

    vault.json                        what this folder is
    archive/aaa/aaa+sss+00001.warc.gz  the records of a series; files are added, and never changed
    indexes/aaa+sss.cdxj              its index, sorted; the newest is whole and names whole files only
    lock                              one export at a time

The index is all that an export remembers: what it names is exported. A WARC file that no index names is what
a killed export left; the next one puts its own file in that place.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from archec.errors import ConfigError, CorruptArchive, UsageError
from archec.export.units import Unit
from archec.store.durable import atomic_write, failure, is_temp
from archec.store.layout import Layout

__all__ = ["IndexLine", "Vault", "open_vault", "sweep"]

_DESCRIPTOR = "vault.json"
_VERSION = 1
_KNOWN = {_DESCRIPTOR, "archive", "indexes", "lock", "lost+found"}
_INDEX_LINE = re.compile(rb'([!-~]+ [0-9]{14} \{"url":"[ -~]*?")[,}].*"filename":"([ -~]*?)"', re.S)
_LONGEST_LINE = 1 << 20


class IndexLine(NamedTuple):
    """A line of an index with its line end, what it begins with (:func:`archec.export.observations.prefix`),
    and the file that it names."""

    line: bytes
    prefix: bytes
    filename: bytes


class Vault(NamedTuple):
    """The folder of a vault."""

    root: Path

    def index_path(self, unit: Unit) -> Path:
        """The index of a unit."""
        return self.root / "indexes" / f"{unit.name}.cdxj"

    def warc(self, unit: Unit, number: int) -> Path:
        """A WARC file of a unit."""
        return self.root / "archive" / unit.folder / f"{unit.name}+{number:05d}.warc.gz"

    def filename(self, path: Path) -> str:
        """What an index calls a WARC file: its path below ``archive``."""
        return f"{path.parent.name}/{path.name}"

    def lines(self, unit: Unit) -> Iterator[IndexLine]:
        """The index as it is, nothing where there is none. Raises :class:`CorruptArchive` for what is no index."""
        path = self.index_path(unit)
        before = b""
        try:
            with open(path, "rb") as file:
                number = 0
                while line := file.readline(_LONGEST_LINE):
                    number += 1
                    match = _INDEX_LINE.match(line)
                    if match is None or not line.endswith(b"}\n") or line <= before:
                        raise CorruptArchive(
                            f"{path}:{number}: is not a line of a sorted index",
                            hint="remove this index: the series is then exported anew",
                        )
                    before = line
                    yield IndexLine(line, match[1], match[2])
        except FileNotFoundError:
            return
        except OSError as error:
            raise failure(error, path) from error

    def next_number(self, unit: Unit) -> int:
        """The number of the next WARC file: the first that no line of the index names, nor a later one."""
        pattern = re.compile(re.escape(f"{unit.folder}/{unit.name}+").encode() + rb"([0-9]{5,9})\.warc\.gz")
        found = (pattern.fullmatch(line.filename) for line in self.lines(unit))
        return max((int(match[1]) for match in found if match is not None), default=0) + 1


def open_vault(root: Path, store: Layout, *, dry: bool) -> Vault:
    """The vault at ``root``; made where there is nothing, unless ``dry``.

    Raises :class:`UsageError` for a folder within the obi store, :class:`ConfigError` for one that holds something else
    and for a vault of another version.
    """
    root = root.absolute()
    if root.resolve() == store.root.resolve() or store.root.resolve() in root.resolve().parents:
        raise UsageError(f"{root}: lies in the obi store", hint="name a folder outside of it")
    try:
        names = sorted(os.listdir(root)) if os.path.lexists(root) else []
        if _DESCRIPTOR in names:
            _check(root / _DESCRIPTOR)
        elif foreign := [name for name in names if name not in _KNOWN and not is_temp(name)]:
            raise ConfigError(f"{root}: holds {foreign[0]!a} and is not a vault", hint="name an empty or a new folder")
        if not dry:
            for folder in (root, root / "archive", root / "indexes"):
                folder.mkdir(parents=True, exist_ok=True)
            if _DESCRIPTOR not in names:
                text = {"type": "archec vault of WARC files", "version": _VERSION}
                atomic_write(root / _DESCRIPTOR, json.dumps(text, indent=2).encode() + b"\n")
    except OSError as error:
        raise failure(error, root) from error
    return Vault(root)


def sweep(vault: Vault) -> int:
    """Removes the temporary files of killed exports; how many. Only for who holds the lock."""
    removed = 0
    try:
        folders = [vault.root, vault.root / "indexes"]
        with os.scandir(vault.root / "archive") as entries:
            folders += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if is_temp(entry.name) and entry.is_file(follow_symlinks=False):
                        os.unlink(entry.path)
                        removed += 1
    except OSError as error:
        raise failure(error, vault.root) from error
    return removed


def _check(path: Path) -> None:
    try:
        found = json.loads(path.read_bytes())
        version = found["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptArchive(f"{path}: is damaged", hint="its text is in docs/export.md") from error
    if version != _VERSION:
        raise ConfigError(f"{path}: a vault of version {version!a}; this archec knows version {_VERSION}")
