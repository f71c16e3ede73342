"""The manifest of a fileset, whose bytes are its state; selection and comparison of its files. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from archec.catalogue.documents import canonical
from archec.catalogue.model import FilesetManifestFile, ManifestPart
from archec.errors import CorruptArchive
from archec.fileset.checksums import mismatch
from archec.fileset.paths import safe_paths, unsafe
from archec.fileset.status import WHOLE, Status
from archec.units import counted

FORMAT = 1
_PART = 500
"""Files in one journal line, and in one piece of JSON."""
_MOST_NAMED = 20


class Heading(Struct, frozen=True, kw_only=True):
    """A manifest without its files."""

    format: int = FORMAT
    fileset: str
    platform_name: str
    platform_domain: str
    platform_id: str
    version: str = ""
    order: tuple[int, ...] = ()
    published: int = 0
    title: str = ""
    web_base_url: str | None = None
    metadata: dict[str, Any] = {}
    bundle: FilesetManifestFile | None = None


class Manifest(Heading, frozen=True, kw_only=True):
    """The stored description of one version of a data set: see docs/fileset.md. It does not depend on the time of the
    request."""

    manifest: tuple[FilesetManifestFile, ...] = ()


_Part = TypeVar("_Part", Heading, Manifest)


def encode(manifest: Manifest) -> Iterator[bytes]:
    """Yields the bytes of a manifest in pieces. Equal manifests have equal bytes."""
    return in_pieces(manifest, sorted(manifest.__struct_fields__), canonical)


def in_pieces(value: Struct, names: Iterable[str], encoder: Callable[[Any], bytes]) -> Iterator[bytes]:
    """Yields the JSON of a value's fields ``names`` in pieces, each with at most 500 files of its ``manifest``."""
    before = "{"
    for name in names:
        start, field = f'{before}"{name}":'.encode(), getattr(value, name)
        before = ","
        if name != "manifest" or not field:
            yield start + encoder(field)
            continue
        for first in range(0, len(field), _PART):
            yield (b"," if first else start + b"[") + encoder(field[first : first + _PART])[1:-1]
        yield b"]"
    yield b"}"


def decode(data: bytes, where: str, part: type[_Part]) -> _Part:
    """Decodes a manifest, or its heading. Raises CorruptArchive if it is invalid; the message begins with ``where``."""
    try:
        return msgspec.json.decode(data, type=part)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptArchive(f"{where}: is not a manifest: {error}") from error


def parts(sha256: str, files: Sequence[FilesetManifestFile]) -> Iterator[ManifestPart]:
    """Yields the files of a manifest as journal records."""
    for first in range(0, len(files), _PART):
        yield ManifestPart(sha256, first, tuple(files[first : first + _PART]))


def is_whole(file: FilesetManifestFile) -> bool:
    """Whether a file is held."""
    return file.status in WHOLE


def not_held(files: Sequence[FilesetManifestFile]) -> str:
    """A line that names the files that are not held, at most 20 of them, each with its status; empty if all are."""
    lacking = [file for file in files if not is_whole(file)]
    if not lacking:
        return ""
    named = ", ".join(f"{' '.join(file.path.split())[:200]} ({file.status})" for file in lacking[:_MOST_NAMED])
    more = f" and {len(lacking) - _MOST_NAMED:,} more" if len(lacking) > _MOST_NAMED else ""
    return f"{len(files) - len(lacking):,} of {counted(len(files), 'file')}; not held: {named}{more}"


def safe_path(file: FilesetManifestFile) -> str:
    """The path of a file in an export."""
    path = (file.extra or {}).get("safe_path")
    return path if isinstance(path, str) else file.path


def set_safe_paths(files: list[FilesetManifestFile]) -> None:
    """Replaces each file by one with its safe path in ``extra``. Files with an unsafe path get the status
    ``unsafe-path``."""
    reasons = [unsafe(file.path) for file in files]
    paths = iter(safe_paths([file.path for file, reason in zip(files, reasons, strict=True) if not reason]))
    for number, reason in enumerate(reasons):
        if reason:
            files[number] = _with(files[number], status=Status.UNSAFE_PATH.value, path_problem=reason)
            continue
        safe = next(paths)
        problem = {"path_problem": safe.problem} if safe.problem else {}
        files[number] = _with(files[number], safe_path=safe.path, **problem)


class FileSelection(NamedTuple):
    """Selects the files whose path matches one of ``include`` (any path if it is empty) and none of ``exclude``."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def with_others(
        self, files: Sequence[FilesetManifestFile], known: Iterable[FilesetManifestFile], paths: Sequence[str]
    ) -> list[FilesetManifestFile]:
        """The selected ``files`` together with the ``known`` ones of the same version that were not selected, in the
        order of ``paths``, which are all paths of the version."""
        places = {path: number for number, path in enumerate(paths)}
        both = [*files, *(file for file in known if not self.wants(file) and file.path in places)]
        return sorted(both, key=lambda file: places.get(file.path, -1))

    def wants(self, file: FilesetManifestFile) -> bool:
        """Whether a file is selected."""
        if self.include and not any(fnmatchcase(file.path, glob) for glob in self.include):
            return False
        return not any(fnmatchcase(file.path, glob) for glob in self.exclude)


def _with(file: FilesetManifestFile, *, status: str | None = None, **extra: Any) -> FilesetManifestFile:
    return replace(file, status=status or file.status, extra={**(file.extra or {}), **extra})


def as_kept(
    listed: Iterable[FilesetManifestFile], kept: Iterable[FilesetManifestFile]
) -> list[FilesetManifestFile] | None:
    """The ``kept`` files of a manifest; None if the platform lists others, or if one that can be fetched is not held.

    A checksum or size that the platform does not state is not compared: the kept ones were computed.
    """
    found = []
    for now, then in zip_longest(listed, kept):
        if now is None or then is None or not _same(now, then):
            return None
        found.append(_sharing(then, now))
    return found


def _sharing(file: FilesetManifestFile, other: FilesetManifestFile) -> FilesetManifestFile:
    """``file`` with the texts of ``other`` where they are equal: a large manifest takes less memory."""
    pairs = ((name, getattr(other, name)) for name in file.__struct_fields__)
    same = {name: value for name, value in pairs if value == getattr(file, name)}
    if file.terminal_url == other.platform_url:
        same["terminal_url"] = other.platform_url
    return replace(file, **same)


def _same(now: FilesetManifestFile, then: FilesetManifestFile) -> bool:
    if (now.path, now.platform_url) != (then.path, then.platform_url):
        return False
    if now.status is not None:
        return (then.status, (then.extra or {}).get("due")) == (now.status, (now.extra or {}).get("due"))
    return is_whole(then) and mismatch(now, then) is None
