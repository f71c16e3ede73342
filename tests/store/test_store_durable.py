"""The layer between archec and the file system: whole files, errors with paths, fallbacks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_fakes import FakeDisk

from archec.errors import StorageFailed, StorageFull, failure, user_name
from archec.store.durable import Disk, atomic_stream, atomic_write, fsync_dir, is_temp, temp_name, write_once
from archec.store.layout import file_name


def test_atomic_write_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a", b"one")
    atomic_write(str(tmp_path / "a"), b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a"]


def test_atomic_stream_keeps_the_mode(tmp_path: Path) -> None:
    """Of a file that it replaces; a new one can be written by its owner."""
    path = tmp_path / "a"
    for mode in (None, 0o640, 0o600):
        if mode is not None:
            path.chmod(mode)
        with atomic_stream(path) as file:
            file.write(b"one")
        found = path.stat().st_mode & 0o777
        assert found == mode if mode is not None else found & 0o600 == 0o600


def test_write_once_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert [write_once(path, data, mode=0o600) for data in (b"one", b"two")] == [True, False]
    assert (path.read_bytes(), path.stat().st_mode & 0o777, os.listdir(tmp_path)) == (b"one", 0o600, ["key"])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("step", ["write", "fsync"])
def test_atomic_write_that_fails_keeps_the_old(tmp_path: Path, fake_disk: FakeDisk, number: int, step: str) -> None:
    atomic_write(tmp_path / "a", b"one")
    fake_disk.breaking = {step: number}
    expected = StorageFailed if number == errno.EIO else StorageFull
    with pytest.raises(expected, match=str(tmp_path / "a")):
        atomic_write(tmp_path / "a", b"two", disk=fake_disk)
    assert (tmp_path / "a").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["a"]


def test_atomic_write_syncs_before_and_after_the_name(tmp_path: Path, fake_disk: FakeDisk) -> None:
    atomic_write(tmp_path / "a", b"one", disk=fake_disk)
    assert fake_disk.order == ["create", "write", "fsync", "fsync_dir"]


def test_atomic_write_into_nowhere(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="missing"):
        atomic_write(tmp_path / "missing" / "a", b"")
    with pytest.raises(StorageFailed, match="missing"):
        fsync_dir(tmp_path / "missing")


def test_errors_name_the_path_and_the_way_out() -> None:
    full = failure(OSError(errno.ENOSPC, "No space"), "/x/y")
    assert isinstance(full, StorageFull)
    assert "/x/y" in full.message
    assert full.hint
    assert isinstance(failure(OSError("odd"), "/x/y"), StorageFailed)


def libc(**functions: Callable[..., int]) -> Callable[..., SimpleNamespace]:
    """Stands for ``ctypes.CDLL`` where the C library has these functions only."""
    return lambda *_, **__: SimpleNamespace(**functions)


def test_errors_say_whose_a_refused_path_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = OSError(errno.EACCES, "Permission denied")
    assert failure(refused, tmp_path / "lock").hint == "check its mode and those of its directories"
    owner = user_name(tmp_path.stat().st_uid)
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    for path in (tmp_path, tmp_path / "lock"):
        assert failure(refused, path).hint == f"it belongs to {owner}, and this is run as 4000000000"
    assert failure(refused, tmp_path / "none" / "lock").hint == "this is run as 4000000000"
    assert failure(OSError(errno.EIO, "broken"), tmp_path).hint == ""


@pytest.mark.parametrize("kernel_call", [True, False])
def test_a_rename_never_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_call: bool
) -> None:
    if not kernel_call:
        monkeypatch.setattr("ctypes.CDLL", libc())
    disk = Disk()
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        (tmp_path / "old").write_bytes(b"new bytes")
        (tmp_path / "held").write_bytes(b"held")
        (tmp_path / "dangling").symlink_to("nowhere")
        assert disk.rename_noreplace("old", fd, "held", fd, "x") == "exists"
        assert disk.rename_noreplace("old", fd, "dangling", fd, "x") == "exists"
        assert (tmp_path / "held").read_bytes() == b"held"
        assert disk.rename_noreplace("absent", fd, "free", fd, "x") == "gone"
        assert disk.rename_noreplace("old", fd, "free", fd, "x") == "done"
        with pytest.raises(StorageFailed):
            disk.rename_noreplace("free", 9999, "other", 9999, "x")
    finally:
        os.close(fd)


def test_a_file_system_without_noreplace_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def renameat2(*_: object) -> int:
        return -1

    monkeypatch.setattr("ctypes.CDLL", libc(renameat2=renameat2))
    disk = Disk()
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EINVAL)
    (tmp_path / "old").touch()
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert disk.rename_noreplace("old", fd, "new", fd, "x") == "done"
    finally:
        os.close(fd)
    assert os.listdir(tmp_path) == ["new"]


def test_syncfs_needs_a_kernel_that_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(StorageFailed, match="the/path"):
            Disk().syncfs(9999, "the/path")
        monkeypatch.setattr("os.uname", lambda: SimpleNamespace(release="5.7.19-generic"))
        assert not Disk().has_syncfs(fd)
        monkeypatch.setattr("os.uname", lambda: SimpleNamespace(release="5.8.0-1-amd64"))
        disk = Disk()
        if disk.has_syncfs(fd):
            disk.syncfs(fd, "x")
        monkeypatch.setattr("ctypes.CDLL", libc())
        disk = Disk()
        assert not disk.has_syncfs(fd)
        with pytest.raises(StorageFailed):
            disk.syncfs(fd, "x")
    finally:
        os.close(fd)


@given(st.text(min_size=1, max_size=300), st.integers(0, 10**12))
def test_no_obi_has_the_name_of_a_temporary_file(id: str, n: int) -> None:  # noqa: A002
    assert is_temp(temp_name(n))
    assert len(temp_name(n)) < 255
    assert not is_temp(file_name(id))
    assert not is_temp(file_name(temp_name(n)))
