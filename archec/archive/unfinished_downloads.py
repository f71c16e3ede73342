"""The unfinished downloads of filesets, from which the next ingest resumes those of a killed one.

A file with one JSON object per line, in the work directory. The temporary files that it names are not removed
(:func:`left_parts`). It is no evidence: it is checked against the bytes before use, and losing it only costs downloads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from archec.closing import Closing
from archec.errors import StorageFailed, failure, storage_errors
from archec.files import read_file
from archec.store.durable import is_temp
from archec.store.writer import Writer
from archec.web.messages import whole

_NAME = "fileset.jsonl"
_MOST = 200_000
_KEPT_FOR = 30 * 86400
"""Seconds after which a download that no run has continued is removed: nobody asks for its file any more."""
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_UNSATISFIED = re.compile(r"bytes \*/([0-9]{1,18})")


class Download(Struct, frozen=True, omit_defaults=True):
    """A download into the temporary file ``temp`` of the obi store, for (``tist``, ``url``).

    ``validator`` (an ETag or Last-Modified) is sent with range requests for the rest. ``sha256`` is set if the download
    is complete. ``over``: it is no longer in progress. The other fields are those of the response.
    """

    url: str
    temp: str = ""
    tist: int = 0
    validator: str = ""
    sha256: str = ""
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    terminal_url: str = ""
    over: bool = False

    @property
    def total(self) -> int | None:
        """The Content-Length of the response; None if it had none."""
        return whole(dict(self.headers).get("content-length", ""))

    def size_after(self, size: int, fields: Mapping[str, str]) -> int:
        """The file's total size, from a 206 response with exactly what is missing after ``size`` bytes; 0 for any other
        response."""
        match = _CONTENT_RANGE.fullmatch(fields.get("content-range", ""))
        if match is None or not size or not self._is_same(fields):
            return 0
        first, last, total = map(int, match.groups())
        return total if first == size and last + 1 == total and self.total in (None, total) else 0

    def is_whole(self, size: int, fields: Mapping[str, str]) -> bool:
        """Whether a 416 response says that the file has no more than ``size`` bytes."""
        match = _UNSATISFIED.fullmatch(fields.get("content-range", ""))
        return match is not None and int(match[1]) == size and self.total in (None, size) and self._is_same(fields)

    def _is_same(self, fields: Mapping[str, str]) -> bool:
        """Whether the validator and Content-Encoding of a response, if it has them, are those of the first response."""
        name = "etag" if self.validator.startswith('"') else "last-modified"
        encodings = ("", dict(self.headers).get("content-encoding", ""))
        return fields.get(name, "") in ("", self.validator) and fields.get("content-encoding", "") in encodings


def validator_of(fields: Mapping[str, str]) -> str:
    """The validator for If-Range: a strong ETag, else Last-Modified; empty if there is none in ASCII."""
    etag = fields.get("etag", "")
    found = etag if etag.startswith('"') and etag.isascii() else fields.get("last-modified", "")
    return found if found.isascii() else ""


_decoder = msgspec.json.Decoder(Download)


class UnfinishedDownloads(Closing):
    """Their file, opened for appending. A context manager, for the holder of the run lock only."""

    def __init__(self, work: Path) -> None:
        self._path = path = work / _NAME
        self._open = _left(work)
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._append(b"\n")

    def left(self, url: str) -> Download | None:
        """The download of this URL, if an earlier process left one."""
        return self._open.get(url)

    def note(self, download: Download) -> None:
        """Records the progress of a download."""
        _note(self._open, download)
        self._append(msgspec.json.encode(download) + b"\n")

    def held(self, url: str, tist: int) -> None:
        """Notes that what was received is held already, under ``tist``: its temporary file is not kept."""
        if (received := self._open.get(url)) is not None:
            self.note(replace(received, tist=tist))

    def settle(self, urls: Iterable[str], run: int, writer: Writer) -> None:
        """Removes what runs before ``run`` left of files that are held now: their bytes were held already, or a run was
        killed before it noted that."""
        if self._open:
            self._remove([one for one in map(self._open.get, urls) if one is not None and one.tist < run], writer)

    def remove_old(self, run: int, writer: Writer) -> None:
        """Removes the downloads that no run has continued for long before ``run``, which has asked for all of its."""
        self._remove([one for one in self._open.values() if one.tist < run - _KEPT_FOR], writer)

    def _remove(self, downloads: Collection[Download], writer: Writer) -> None:
        for one in downloads:
            writer.discard(one.temp)
        self.over([one.url for one in downloads])

    def committed(self, run: int, receiving: Container[str]) -> None:
        """Removes the complete downloads of a run, which are now held, except those of ``receiving``."""
        done = (one for one in self._open.values() if one.tist == run and one.sha256)
        self.over([one.url for one in done if one.url not in receiving])

    def over(self, urls: Iterable[str]) -> None:
        """Removes downloads that are no longer in progress."""
        lines = [msgspec.json.encode(Download(url, over=True)) for url in urls if self._open.pop(url, None) is not None]
        if lines:
            self._append(b"\n".join([*lines, b""]))

    def _append(self, data: bytes) -> None:
        with storage_errors(self._path):
            if os.write(self._fd, data) != len(data):
                raise StorageFailed(f"{self._path}: cannot be written to")

    def close(self) -> None:
        """Closes the file, and removes it if no downloads are in progress."""
        with storage_errors(self._path):
            os.close(self._fd)
            if not self._open:
                self._path.unlink(missing_ok=True)


def left_parts(work: Path) -> set[str]:
    """The paths in the obi store of the temporary files that the next ingest continues."""
    return {one.temp for one in _left(work).values()}


def _left(work: Path) -> dict[str, Download]:
    path = work / _NAME
    found: dict[str, Download] = {}
    try:
        lines = read_file(path).splitlines()
    except FileNotFoundError:
        return found
    except OSError as error:
        raise failure(error, path) from error
    for line in lines:
        with suppress(ValueError, RecursionError):  # incomplete last line of a killed process
            download = _decoder.decode(line)
            if download.over or is_temp(os.path.basename(download.temp)):  # else it is damaged
                _note(found, download)
    return found


def _note(found: dict[str, Download], download: Download) -> None:
    if download.over:
        found.pop(download.url, None)
    elif len(found) < _MOST:
        found[download.url] = download
