"""The unfinished downloads of filesets, from which the next ingest resumes those of a killed one.

A file with one JSON object per line, in the work directory. The temporary files that it names are not removed
(:func:`left_parts`). It is no evidence: it is checked against the bytes before use, and losing it only costs downloads.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from archec.closing import Closing
from archec.errors import StorageFailed
from archec.files import read_file
from archec.store.durable import failure, storage_errors

_NAME = "fileset.jsonl"
_MOST = 200_000


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

    @property
    def has_any(self) -> bool:
        """Whether any download is in progress."""
        return bool(self._open)

    def note(self, download: Download) -> None:
        """Records the progress of a download."""
        _note(self._open, download)
        self._append(msgspec.json.encode(download) + b"\n")

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
            _note(found, _decoder.decode(line))
    return found


def _note(found: dict[str, Download], download: Download) -> None:
    if download.over:
        found.pop(download.url, None)
    elif len(found) < _MOST:
        found[download.url] = download
