"""The scripts: what they say where they cannot go on, and that they do their work in a fresh copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from readme_blocks import README, ROOT, alike, blocks

_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".cache", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "*.egg-info", "work",
    "catalogue.sqlite*", "*.tar*",
)  # fmt: skip


def copy_of_the_checkout(folder: Path) -> Path:
    """A copy as from git: without what was made in the checkout."""
    copy = folder / "a checkout"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=_LEFT_OUT)
    for made in (copy / "archive").iterdir():
        if made.name != ".gitkeep":
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    return copy


def fake_python(folder: Path, body: str) -> Path:
    """A folder with commands named as all Pythons are, which do this."""
    folder.mkdir()
    for name in ("python", "python3", *(f"python3.{minor}" for minor in range(10, 15))):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return folder


def run(command: list[str], folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        command, cwd=folder, env={**environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=900
    )


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with nothing but the scripts."""
    (tmp_path / "bare").mkdir()
    shutil.copytree(ROOT / "scripts", tmp_path / "bare" / "scripts")
    return tmp_path / "bare"


@pytest.mark.parametrize("script", ["quickstart", "test"])
def test_a_python_that_is_too_old(script: str, bare: Path) -> None:
    old = fake_python(bare / "bin", 'if [ "$1" = --version ]; then echo "Python 3.8.10"; else exit 1; fi')
    done = run([f"scripts/{script}"], bare, f"{old}:/usr/bin:/bin")
    assert done.returncode == 1
    assert "archec needs Python 3.10 or later; found: Python 3.8.10." in done.stderr
    assert not (bare / ".venv").exists()


def test_a_python_without_venv(bare: Path) -> None:
    lame = fake_python(bare / "bin", f'case "$2" in *ensurepip*) exit 1;; esac\nexec "{sys.executable}" "$@"')
    done = run(["scripts/quickstart"], bare, f"{lame}:/usr/bin:/bin")
    assert done.returncode == 1
    assert "has no venv module. On Debian and Ubuntu: apt install python3-venv" in done.stderr


def test_something_else_named_venv_is_left_alone(bare: Path) -> None:
    (bare / ".venv").mkdir()
    (bare / ".venv" / "mine").write_text("mine")
    done = run(["scripts/quickstart"], bare, os.environ["PATH"])
    assert done.returncode == 1
    assert "is not a virtual environment: move it away" in done.stderr
    assert (bare / ".venv" / "mine").read_text() == "mine"


def test_a_python_that_was_named_and_is_none(bare: Path) -> None:
    done = run(["env", "PYTHON=/nowhere/python3", "scripts/quickstart"], bare, os.environ["PATH"])
    assert done.returncode == 1
    assert "PYTHON=/nowhere/python3 is not a Python 3.10 or later." in done.stderr


@pytest.mark.parametrize("script", ["scripts/quickstart", "scripts/test", "scripts/venv.sh", ".ci/run"])
def test_shell_syntax(script: str) -> None:
    shell = "bash" if script == ".ci/run" else "sh"
    assert run([shell, "-n", str(ROOT / script)], ROOT, os.environ["PATH"]).stderr == ""


def test_ci_finds_pythons_and_lives_without_apt(tmp_path: Path) -> None:
    for name in ("python3.11", "python3.14"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexit 100\n")
    (tmp_path / "apt-get").chmod(0o755)
    done = run(
        ["bash", "-euo", "pipefail", "-c", f'. "{ROOT}/.ci/run"; HOME=/nowhere; pythons; install_packages; echo on'],
        tmp_path,
        f"{tmp_path}:/usr/bin:/bin",
    )
    assert done.returncode == 0, done.stderr
    assert f"3.11 {tmp_path}/python3.11\n" in done.stdout
    assert f"3.14 {tmp_path}/python3.14\n" in done.stdout
    assert done.stdout.endswith("on\n")


@pytest.mark.slow
def test_a_fresh_copy_comes_to_life(tmp_path: Path) -> None:
    """What the README says of a fresh checkout: the quickstart, twice, and ``pip install .``"""
    checkout = copy_of_the_checkout(tmp_path)
    path = f"{checkout / '.venv' / 'bin'}:{os.environ['PATH']}"
    shown = {block.mark: block.text for block in blocks(README.read_text(encoding="utf-8"))}
    for block in blocks(README.read_text(encoding="utf-8")):
        if block.mark != "sh fresh":
            continue
        done = run(["sh", "-euc", block.text], checkout, path)
        if "could not install" in done.stderr or "No matching distribution" in done.stderr:
            pytest.skip(f"pip has no network or mirror here: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        if "quickstart" in block.text:
            assert alike(done.stdout) == alike(shown["text demo"])
    installed = run(["archec", "--version"], tmp_path, path)
    assert installed.stdout.startswith("archec, version "), installed.stderr
    where = run(["python", "-c", "import archec; print(archec.__file__)"], tmp_path, path).stdout.strip()
    assert where.startswith(str(checkout / ".venv"))
    assert (Path(where).parent / "py.typed").exists()

    before = time.monotonic()
    again = run(["scripts/quickstart", str(tmp_path / "demo again")], checkout, path)
    assert again.returncode == 0, again.stderr
    assert "Installing" not in again.stderr
    assert time.monotonic() - before < 60
    assert (tmp_path / "demo again" / "archive" / "layout.json").exists()
