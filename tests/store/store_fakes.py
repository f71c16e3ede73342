"""A disk that records what is done to it, and breaks where a test says."""

from __future__ import annotations

import errno
import os
from typing import Literal

from archec.errors import failure
from archec.store.durable import Data, Disk


class FakeDisk(Disk):
    """The real disk, but every operation is noted down, and one chosen one fails."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, str]] = []
        self.breaking: dict[str, int] = {}
        self.no_syncfs = False
        self.no_links = False
        self.written = 0
        self.room: int | None = None

    def _note(self, what: str, path: str) -> None:
        self.log.append((what, path))
        if what in self.breaking:
            number = self.breaking[what]
            raise failure(OSError(number, os.strerror(number)), path)

    @property
    def order(self) -> list[str]:
        """What was done, without repetitions in a row."""
        names = [what for what, _ in self.log]
        return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]

    def trusts_syncfs_at(self, path: str | os.PathLike[str]) -> bool:
        """Whether a writer there syncs by ``syncfs``."""
        fd = os.open(path, os.O_RDONLY)
        try:
            return self.has_syncfs(fd)
        finally:
            os.close(fd)

    def has_syncfs(self, fd: int) -> bool:
        return not self.no_syncfs and super().has_syncfs(fd)

    def create(self, name: str, dir_fd: int, path: str) -> int | None:
        self._note("create", path)
        return super().create(name, dir_fd, path)

    def write(self, fd: int, data: Data, path: str) -> None:
        self._note("write", path)
        if self.room is not None and self.written + len(data) > self.room:
            super().write(fd, data[: self.room - self.written], path)
            self.written = self.room
            raise failure(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path)
        self.written += len(data)
        super().write(fd, data, path)

    def begin_sync(self, fd: int) -> None:
        self._note("begin_sync", "")
        super().begin_sync(fd)

    def syncfs(self, fd: int, path: str) -> None:
        self._note("syncfs", path)
        super().syncfs(fd, path)

    def fsync(self, fd: int, path: str) -> None:
        self._note("fsync", path)
        super().fsync(fd, path)

    def fdatasync(self, fd: int, path: str) -> None:
        self._note("fdatasync", path)
        super().fdatasync(fd, path)

    def fsync_dir(self, fd: int, path: str) -> None:
        self._note("fsync_dir", path)
        super().fsync_dir(fd, path)

    def rename_noreplace(
        self, old: str, old_fd: int, new: str, new_fd: int, path: str
    ) -> Literal["done", "exists", "gone"]:
        self._note("rename", path)
        return super().rename_noreplace(old, old_fd, new, new_fd, path)

    def symlink(self, target: str, name: str, dir_fd: int, path: str) -> bool:
        self._note("symlink", path)
        return super().symlink(target, name, dir_fd, path)

    def link(
        self, old: str, old_fd: int, new: str, new_fd: int, path: str
    ) -> Literal["done", "exists", "gone", "refused"]:
        self._note("link", path)
        return "refused" if self.no_links else super().link(old, old_fd, new, new_fd, path)

    def truncate(self, fd: int, size: int, path: str) -> None:
        self._note("truncate", path)
        super().truncate(fd, size, path)
