"""The audit log: one line of JSON per request to a collection."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import orjson

from archec.errors import ArchecError, storage_errors

_FORM = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z | orjson.OPT_OMIT_MICROSECONDS


class AuditLog:
    """An append-only log file, readable by its owner only. It may be rotated while it is open."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._descriptor = -1
        self._inode = -1
        self._cut = b""
        """What ends a line that was written in part, as the disk was full."""
        self.fault = ""
        if path is not None:
            self._open(path)

    def add(self, now: float, fields: dict[str, Any]) -> None:
        """Appends a line. Does not raise: a failure sets ``fault``, which ``/healthz`` reports."""
        if self._descriptor < 0:
            return
        line = self._cut + orjson.dumps({"time": datetime.fromtimestamp(now, timezone.utc), **fields}, option=_FORM)
        try:
            while line := line[os.write(self._descriptor, line) :]:
                self._cut = b"\n"
            self.fault, self._cut = "", b""
        except OSError as error:
            self.fault = f"the audit log cannot be written: {error.strerror}"

    def look(self) -> None:
        """Reopens the file if it was rotated."""
        if self._path is None:
            return
        with suppress(OSError):
            if os.stat(self._path).st_ino == self._inode:
                return
        old = self._descriptor
        try:
            self._open(self._path)
            os.close(old)
        except ArchecError as error:
            self.fault = error.message

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self, path: Path) -> None:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Without O_NONBLOCK this would wait for the reader of a named pipe.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            self._descriptor = os.open(path, flags, 0o600)
            os.set_blocking(self._descriptor, True)
            self._inode = os.fstat(self._descriptor).st_ino
