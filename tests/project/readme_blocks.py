"""README.md as the tests and ``scripts/fill_readme.py`` read it: its code blocks, run and compared.

The word after a block's language says how it is treated: ``sh run`` is run in order in one shell, in a scratch
folder that looks like a checkout; ``text output`` is what the ``sh run`` block before it prints; ``text demo`` is
what ``archec demo`` prints; ``sh fresh`` and ``sh ci`` are run elsewhere; ``sh debian`` and ``sh clone`` are what a
newcomer does first (``scripts/fresh_debian``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import archec

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
MARKS = {"sh debian", "sh clone", "sh run", "sh fresh", "sh ci", "text output", "text demo"}

_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
_MARK = "\x1e"
_ALIKE = (
    (re.compile(r"(?<= demo is in )/\S+$", re.M), "DIR"),
    (re.compile(r"(?<!\S)/\S+?/(?=(?:data|config\.yaml|report\.html|my-archive)\b)"), "DIR/"),
    (re.compile(r"127\.0\.0\.1(:|%3A)[0-9]+"), "127.0.0.1:PORT"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z"), "TIME"),
    (re.compile(r"\b20[0-9]{2}-[01][0-9]-[0-3][0-9]\b"), "DATE"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "MD5"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA256"),
    (re.compile(r"^(disk|due) .*$", re.M), r"\1"),
    (re.compile(r"\b[0-9]{3}/[0-9]{3}/[0-9]{4}\b"), "TIST"),
    (re.compile(r"\b[0-9]{10}\b"), "TIST"),
    (re.compile(r"\b[0-9.]+ k?B\b"), "SIZE"),
    (re.compile(r"\b[0-9.]+m?s\b"), "DURATION"),
    (re.compile(r"\b[0-9]+ journal batches\b"), "BATCHES"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after the fence, its text, where the text begins and ends in the file."""

    mark: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Played:
    """A demo that was played: its folder, and what it printed."""

    folder: Path
    output: str


def blocks(text: str) -> list[Block]:
    """All fenced blocks in their order."""
    return [Block(m[1].strip(), m[2], m.start(2), m.end(2)) for m in _BLOCK.finditer(text)]


def alike(output: str) -> list[str]:
    """An output's lines without what differs from run to run: times, ports, folders, sizes, checksums."""
    for pattern, word in _ALIKE:
        output = pattern.sub(word, output)
    return [line.rstrip() for line in output.strip().splitlines()]


def environment(scratch: Path) -> dict[str, str]:
    """An environment whose PATH finds this checkout's ``archec``, run by this Python."""
    shims = scratch / ".bin"
    shims.mkdir(exist_ok=True)
    shim = shims / "archec"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m archec "$@"\n')
    shim.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCHEC_")}
    package = str(Path(archec.__file__).parents[1])
    return {**kept, "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": package}


def demo_output(folder: Path) -> str:
    """What ``archec demo`` prints, its archive in ``folder``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = ["archec", "demo", str(folder)]
    return _done(command, folder.parent, environment(folder.parent))


def checkout_like(scratch: Path) -> Path:
    """A folder ``archec`` that holds what a checkout holds beside the code: configuration, sample, empty store."""
    checkout = scratch / "archec"
    checkout.mkdir()
    shutil.copy(ROOT / "config.yaml", checkout)
    shutil.copytree(ROOT / "data" / "sample", checkout / "data" / "sample")
    (checkout / "data" / "tarballs").mkdir()
    (checkout / "data" / "current").symlink_to("sample/RePEc")
    (checkout / "archive").mkdir()
    return checkout


def run_blocks(found: list[Block], scratch: Path) -> list[str]:
    """What each ``sh run`` block prints on stdout; CalledProcessError with stderr where one fails."""
    script = "set -eu\n"
    for block in found:
        if block.mark == "sh run":
            script += f"printf '{_MARK}'\n{block.text}"
    output = _done(["bash", "-c", script], checkout_like(scratch), environment(scratch))
    return output.split(_MARK)[1:]


def _done(command: list[str], folder: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def outputs(text: str, scratch: Path) -> list[tuple[Block, str]]:
    """Each ``text output`` and ``text demo`` block of a README with what stands there by right."""
    found = blocks(text)
    printed = iter(run_blocks(found, scratch / "steps"))
    wanted: list[tuple[Block, str]] = []
    last = ""
    for block in found:
        if block.mark == "sh run":
            last = next(printed)
        elif block.mark == "text output":
            wanted.append((block, last))
        elif block.mark == "text demo":
            wanted.append((block, demo_output(scratch / "demo" / "archive")))
    return wanted
