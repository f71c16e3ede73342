"""Checks what helpers return: those of other packages may return anything, and what is journalled cannot be unsaid."""

from __future__ import annotations

from itertools import islice

import msgspec
from msgspec.structs import replace

from archec.catalogue.model import FilesetManifestFile
from archec.errors import BadName
from archec.fileset.checksums import checksums
from archec.fileset.model import FilesetPlatformItem
from archec.fileset.platforms.base import MOST_FILES, FilesetPlatformHelper
from archec.fileset.status import WHOLE, PlatformError, Status
from archec.ids import parse_fileset

_LARGEST = 2**63 - 1


def checked_item(item: object, helper: FilesetPlatformHelper | None) -> FilesetPlatformItem:
    """Returns the description of a data set, with checksums in lower case. Raises PlatformError if it cannot be stored.
    The files of archec's own helpers are not checked again."""
    name = helper.name if helper is not None else ""
    try:
        if not isinstance(item, FilesetPlatformItem):
            raise TypeError(f"{type(item).__name__} is not a FilesetPlatformItem")
        files = item.manifest
        if files is not None and not type(helper).__module__.startswith("archec."):
            files = [_checked_file(file) for file in islice(files, MOST_FILES + 1)]
            if len(files) > MOST_FILES:
                raise ValueError(f"more than {MOST_FILES} files")
        plain = msgspec.json.encode(replace(item, manifest=None))
        found = replace(msgspec.json.decode(plain, type=FilesetPlatformItem), manifest=files)
        if found.platform_name != name:
            raise ValueError(f"a data set of the platform {found.platform_name}")
        if parse_fileset(str(found.fileset)) != found.fileset:
            raise ValueError(f"{str(found.fileset)[:200]} is not the id of a fileset: upper case in platform or domain")
    except (msgspec.MsgspecError, ValueError, TypeError, BadName) as error:
        raise PlatformError(f"the helper for {name} returns what cannot be stored: {str(error)[:500]}") from error
    return found


def _checked_file(file: object) -> FilesetManifestFile:
    """Returns the row of a file. Raises ValueError, TypeError and MsgspecError."""
    if not isinstance(file, FilesetManifestFile):
        raise TypeError(f"{type(file).__name__} is not a FilesetManifestFile")
    found = msgspec.json.decode(msgspec.json.encode(file), type=FilesetManifestFile)
    if not 0 <= (found.size or 0) <= _LARGEST:
        raise ValueError(f"{found.path[:200]}: the size {found.size}")
    if found.status is not None and Status(found.status) in WHOLE:
        raise ValueError(f"{found.path[:200]}: the status {found.status}, before anything is fetched")
    sums = {kind: getattr(checksums(getattr(found, kind), kind=kind), kind) for kind in ("md5", "sha1", "sha256")}
    return replace(found, **sums)
