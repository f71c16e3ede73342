"""The ledger of downloads that are under way: what a killed ingest left, so that the next one goes on with it.

One JSON object a line in the work directory. Temporary files that it names are not swept (:func:`left_parts`). It is
no record: what it says is checked against the bytes before it is believed, and losing it costs downloads only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from archec.errors import StorageFailed
from archec.store.durable import failure

_NAME = "fileset.jsonl"
_MOST = 200_000


class Download(Struct, frozen=True, omit_defaults=True):
    """A download into the temporary file ``temp`` of the obi store, for (``tist``, ``url``).

    ``validator`` binds a range to what has come (an ETag, or a Last-Modified); ``sha256`` where it is whole; ``over``:
    nothing is left of it.
    The rest is of the answer.
    """

    url: str
    temp: str = ""
    tist: int = 0
    validator: str = ""
    sha256: str = ""
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = ""
    terminal_url: str = ""
    over: bool = False


_decoder = msgspec.json.Decoder(Download)


class Ledger:
    """See the module's docstring. Only the holder of the run lock has one; a context manager."""

    def __init__(self, work: Path) -> None:
        self._path = path = work / _NAME
        self._open = _left(work)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._append(b"\n")
        except OSError as error:
            raise failure(error, path) from error

    def left(self, url: str) -> Download | None:
        """What an earlier process left of a download."""
        return self._open.get(url)

    def note(self, download: Download) -> None:
        """Notes how far a download has come."""
        _note(self._open, download)
        self._append(msgspec.json.encode(download) + b"\n")

    def over(self, urls: Iterable[str]) -> None:
        """Nothing is left of these downloads."""
        lines = [msgspec.json.encode(Download(url, over=True)) for url in urls if self._open.pop(url, None) is not None]
        if lines:
            self._append(b"\n".join([*lines, b""]))

    def _append(self, data: bytes) -> None:
        if os.write(self._fd, data) != len(data):
            raise StorageFailed(f"{self._path}: cannot be written to")

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it; without anything under way it goes."""
        os.close(self._fd)
        if not self._open:
            self._path.unlink(missing_ok=True)


def left_parts(work: Path) -> set[str]:
    """The temporary files, by their paths in the obi store, with which the next ingest goes on."""
    return {one.temp for one in _left(work).values()}


def _left(work: Path) -> dict[str, Download]:
    path = work / _NAME
    found: dict[str, Download] = {}
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return found
    except OSError as error:
        raise failure(error, path) from error
    for line in lines:
        with suppress(ValueError, RecursionError):  # the last line of a killed process
            _note(found, _decoder.decode(line))
    return found


def _note(found: dict[str, Download], download: Download) -> None:
    if download.over:
        found.pop(download.url, None)
    elif len(found) < _MOST:
        found[download.url] = download
