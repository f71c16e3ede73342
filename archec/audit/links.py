"""Symbolic links of the obi store: each must lead, by its text alone, to where an obi is."""

from __future__ import annotations

from archec.errors import ArchecError, StorageFailed
from archec.store.directories import Directories
from archec.store.links import follow, id_of_name


def judge(directories: Directories, path: str) -> tuple[str, str] | None:
    """What is wrong with the link at a relative path: code and message of a finding, or None."""
    try:
        fault = follow(directories, path, id_of_name(path.rpartition("/")[2])).fault
    except StorageFailed as error:
        return "unreadable", error.message
    except ArchecError as error:
        return "link-dangling", error.message
    if fault is None:
        return None
    return "link-escapes" if fault.kind == "escapes" else "link-dangling", fault.message
