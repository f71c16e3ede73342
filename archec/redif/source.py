"""Opening a data set, whatever it is: a directory or a tarball, told apart by content."""

from __future__ import annotations

import stat
from pathlib import Path

from archec.errors import DataSetError
from archec.redif.directory import DirectoryTree
from archec.redif.items import Blob, Directory, Item, Source, Unread
from archec.redif.place import Place, own, place
from archec.redif.tarball import Tarball

__all__ = ["Blob", "Directory", "Item", "Place", "Source", "Unread", "open_source", "own", "place"]


def open_source(path: Path, *, max_file: int) -> Source:
    """The data set at ``path``; files of more than ``max_file`` bytes are not read.

    A directory, or a tarball that is plain or compressed by gzip, zstd, xz or bzip2; names are not
    looked at. ``path`` itself may be a symbolic link. Raises :class:`DataSetError` where there is
    nothing that can be read as a data set.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataSetError(f"cannot open the data set {path}: {reason}") from error
    if stat.S_ISDIR(mode):
        return DirectoryTree(path, max_file=max_file)
    if stat.S_ISREG(mode):
        return Tarball(path, max_file=max_file)
    raise DataSetError(f"{path} is neither a directory nor a tarball")
