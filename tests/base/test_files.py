"""Files that may have been replaced by something else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from archec.files import read_file


def test_the_bytes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "file") == read_file(tmp_path / "link") == b"abc"
    assert read_file(tmp_path / "file", 2) == b"ab"


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    for name in ("pipe", "endless", "socket"):
        with pytest.raises(OSError, match="is not a file"):
            read_file(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing")
