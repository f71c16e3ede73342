"""stdout and stderr that cannot be written to: one line and exit code 1, or nothing where nobody is there to read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from gather_support import archec_inline, environment, make, write_papers

from archec.config import Config


@pytest.fixture(scope="module")
def archive(memory_folder: Callable[[], Path]) -> Config:
    """An archive that holds one template."""
    config = make(memory_folder() / "archive")
    folder = config.data_path / "aaa/sss"
    folder.mkdir(parents=True)
    (folder / "p.rdf").write_text("Template-Type: ReDIF-Paper 1.0\nTitle: T\nHandle: RePEc:aaa:sss:1\n")
    assert archec_inline(config, "gather", "--no-fetch").code == 0
    return config


def shell(config: Config, arguments: Sequence[str], redirections: str) -> tuple[int, str]:
    """Exit code and stderr of a command with the redirections of a shell."""
    command = [sys.executable, "-m", "archec", *arguments, "--config", str(config.base / "config.yaml")]
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirections}', "sh", *command],
        stderr=subprocess.PIPE, env=environment(), check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
@pytest.mark.parametrize(
    "arguments", [["get", "RePEc:aaa:sss:1"], ["dump"], ["history", "RePEc:aaa:sss:1", "--json"], ["dump", "--help"]]
)
def test_stdout_is_full_or_closed(archive: Config, arguments: list[str], redirection: str) -> None:
    code, err = shell(archive, arguments, redirection)
    assert code == 1
    assert [line for line in err.splitlines() if not line.startswith("archec: RePEc:")] == [
        f"archec: cannot write to stdout: {os.strerror(28 if 'full' in redirection else 9)}"
    ]


def test_a_command_that_prints_nothing_needs_no_stdout(archive: Config, tmp_path: Path) -> None:
    code, _ = shell(archive, ["get", "RePEc:aaa:sss:1", "-o", str(tmp_path / "x")], ">&- 2>&-")
    assert code == 0
    assert (tmp_path / "x").read_text().endswith("Handle: RePEc:aaa:sss:1\n")


def test_a_closed_stdin_is_empty(archive: Config) -> None:
    code, err = shell(archive, ["fileset", "ingest", "--requests", "-"], "<&-")
    assert (code, err) == (0, "archec: there were no requests\n")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_stderr_is_no_reason_to_fail(archive: Config, redirection: str) -> None:
    assert shell(archive, ["gather", "--no-fetch", "--json"], f">/dev/null {redirection}")[0] == 0


def test_nobody_reads_what_a_run_says(memory_folder: Callable[[], Path]) -> None:
    config = make(memory_folder() / "archive")
    write_papers(config, [f"http://127.0.0.1:9/{n}" for n in range(40)])
    assert archec_inline(config, "gather", "--no-fetch").code == 0
    for path in (config.data_path / "aaa/sss").iterdir():
        path.write_text("Template-Type: ReDIF-Paper 1.0\nTitle: T\nHandle: RePEc:aaa:sss:other\n")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "archec", "gather", "--no-fetch", "--config", str(config.base / "config.yaml")]
    try:
        done = subprocess.run(command, stdout=write, stderr=write, env=environment(), check=False, timeout=60)
    finally:
        os.close(write)
    assert done.returncode == 3  # losses held back, as with a reader
