"""The help: summaries are whole, every command has an example that runs; completion in shells, and manual pages."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from gather_support import ROOT, archec_inline, commands, environment

OLD = "data/tarballs/RePEc_2024-06-30.tar.gz"
FIRST = ("archec", "gather", "get", "seal", "access token create", "access index")
"""Commands whose examples make what those of others need."""
ELSEWHERE = {"demo", "fileset", "fileset ingest", "fileset show", "fileset verify", "fileset changes", "fileset export"}
"""Run by the tests of the project, and by those of filesets, which have a platform."""


def examples() -> dict[str, str]:
    found = {}
    for name, command in commands():
        text = f"{inspect.cleandoc(command.help or '')}\n\n{command.epilog or ''}"
        given = re.findall(r"^Example: archec (.+)$", text, re.M)
        assert len(given) == 1, f"archec {name} --help has no example"
        assert name == "archec" or given[0].startswith(name), given
        found[name] = given[0]
    return found


def test_summaries_are_whole_and_pages_fit() -> None:
    for name, command in commands():
        shown = archec_inline(None, *name.removeprefix("archec").split(), "--help").out.decode()
        assert max(map(len, shown.splitlines())) <= 80, name
        if isinstance(command, click.Group):
            listed = shown.partition("\nCommands:\n")[2].partition("\n\n")[0].splitlines()
            assert len(listed) == len(command.list_commands(click.Context(command)))
            assert not [line for line in listed if not line.endswith((".", ")", "."))], listed
            assert not [line for line in listed if line.endswith("...")], listed


@pytest.fixture
def first_steps(tmp_path: Path) -> Path:
    """An archive of the sample, with a data set to replay and what else the examples name."""
    assert archec_inline(None, "init", tmp_path / "my-archive").code == 0
    here = tmp_path / "my-archive"
    shutil.copytree(ROOT / "data" / "sample" / "RePEc", here / "data" / "current", dirs_exist_ok=True)
    subprocess.run(["tar", "-czf", here / OLD, "-C", ROOT / "data" / "sample", "RePEc"], check=True)
    (here / "warcs").mkdir()
    for name in ("local", "new", "gone"):
        (here / f"{name}.cdxj").touch()
    config = here / "config.yaml"
    config.write_text(config.read_text().replace("\ncollections: {}\n", "\ncollections: {local: local.cdxj}\n"))
    return here


def test_examples_run(first_steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(first_steps)
    found = {name: line for name, line in examples().items() if name not in ELSEWHERE}
    assert archec_inline(None, "gather", "-f", OLD, "--no-fetch").code == 0
    shutil.copytree("archive", "copy", symlinks=True)
    run = re.findall(rb"^([0-9]{10}) ", archec_inline(None, "runs").out, re.M)[-1].decode()
    for name in (*FIRST, *(name for name in found if name not in (*FIRST, "fork")), "fork"):
        line = found[name].replace("1352481230", run).replace("/mnt/copy/archec", "copy")
        if name == "fork":  # an older copy is restored
            shutil.move("archive", "lost")
            shutil.move("copy", "archive")
        if name in ("archec", "init"):
            line = line.replace("my-archive", f"{name}-made")
        if name == "gather":
            line += " --no-fetch"  # the sample's files are on hosts that do not exist
        if name == "serve":
            serve(line.replace("8080", "0"))
            continue
        done = archec_inline(None, *shlex.split(line))
        assert done.code == 0, (line, done)


def serve(line: str) -> None:
    """Until it is up."""
    command = [sys.executable, "-m", "archec", *shlex.split(line)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as server:
        assert server.stderr is not None
        for told in server.stderr:
            if "startup complete" in told:
                break
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert server.returncode == 0


# -- completion -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shims(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose PATH finds this ``archec``."""
    folder = tmp_path_factory.mktemp("shims")
    (folder / "archec").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m archec "$@"\n')
    (folder / "archec").chmod(0o755)
    home = {"HOME": str(folder), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    return {**environment(), **home}


ASK = {
    "bash": """
        eval "$(archec completion bash)"
        complete -p archec
        ask() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _archec_completion "$@"; echo "${COMPREPLY[@]}"
        }
        ask archec cov; ask archec gather --no-f; ask archec fileset export-""",
    "zsh": """
        autoload -U compinit; compinit -u -D
        eval "$(archec completion zsh)"
        compadd() { print -l -- "${completions[@]}"; }
        _describe() { print -l -- "${completions_with_descriptions[@]%%:*}"; }
        ask() { words=("$@"); CURRENT=$#; _archec_completion; }
        ask archec cov; ask archec gather --no-f; ask archec fileset export-""",
    "fish": """
        archec completion fish | source
        complete -C 'archec cov'; complete -C 'archec gather --no-f'; complete -C 'archec fileset export-'""",
}


@pytest.mark.parametrize("shell", ASK)
def test_shells_complete(shell: str, shims: dict[str, str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    quiet = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *quiet, "-c", ASK[shell]], env=shims, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert [word for word in ("coverage", "--no-fetch", "export-sql") if word not in done.stdout.split()] == []


def test_a_shell_without_completion_is_a_usage_error() -> None:
    assert archec_inline(None, "completion", "tcsh").code == 2


# -- manual pages -----------------------------------------------------------------------------------


def test_manual_pages(tmp_path: Path) -> None:
    done = archec_inline(None, "man", tmp_path / "man1")
    assert done.code == 0
    pages = sorted((tmp_path / "man1").iterdir())
    assert {page.stem for page in pages} == {
        "archec" if name == "archec" else f"archec-{name.replace(' ', '-')}" for name, _ in commands()
    }
    for name, line in examples().items():
        page = tmp_path / "man1" / ("archec.1" if name == "archec" else f"archec-{name.replace(' ', '-')}.1")
        assert line.replace("-", "\\-") in page.read_text()
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed: the pages' syntax was not checked")
    checked = subprocess.run(["groff", "-man", "-ww", "-z", *pages], capture_output=True, text=True, check=False)
    assert checked.stderr == ""
