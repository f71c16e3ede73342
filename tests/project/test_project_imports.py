"""Imports run in one direction: that of the picture in docs/architecture.md."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from project_imports import imports
from readme_blocks import ROOT, blocks

PACKAGE = ROOT / "archec"


def floors() -> list[list[str]]:
    """The rows of rooms in the picture, from the top down."""
    picture = blocks((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))[0].text
    there = rooms()
    named = (re.split(" {6,}", line.strip())[0] for line in picture.splitlines())
    rows = ([word for word in re.findall("[a-z]+", line) if word in there] for line in named)
    return [row for row in rows if row]


def rooms() -> set[str]:
    """The folders and modules that lie directly in the package."""
    found = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    return found | {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}


def room_of(path: Path) -> str:
    """The room in which a module lies; empty for the package's own ``__init__`` and ``__main__``."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first.startswith("__") else first


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and room of every import of the package in a module."""
    for line, name in imports(path):
        parts = name.split(".")
        if parts[0] == "archec" and len(parts) > 1 and not parts[1].startswith("__"):
            yield line, parts[1]


def test_every_room_is_in_the_picture_once() -> None:
    drawn = [room for row in floors() for room in row]
    assert sorted(drawn) == sorted(rooms())


def test_every_room_has_its_paragraph() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## The packages")[2]
    named = set(re.findall(r"`([a-z]+)`", " ".join(re.findall(r"^\*\*(.+?)\*\*", text, re.M | re.S))))
    assert named == rooms()


def test_imports_run_downwards() -> None:
    floor = {room: number for number, row in enumerate(floors()) for room in row}
    ground = len(floors()) - 1
    upwards = []
    for path in sorted(PACKAGE.rglob("*.py")):
        here = room_of(path)
        for line, there in imported(path):
            if not here or here == there:
                continue
            if not (floor[here] < floor[there] or floor[here] == floor[there] == ground):
                upwards.append(f"{path}:{line}: {here} imports {there}, which is not below it")
    assert upwards == []


def test_no_two_rooms_need_each_other() -> None:
    needs: dict[str, set[str]] = {room: set() for room in rooms()}
    for path in PACKAGE.rglob("*.py"):
        here = room_of(path)
        if here:
            needs[here] |= {there for _, there in imported(path)} - {here}
    TopologicalSorter(needs).prepare()  # raises CycleError, which names them


def test_no_import_runs_in_a_circle() -> None:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    needs: dict[str, set[str]] = {}
    for here, path in modules.items():
        names = {name if name in modules else name.rpartition(".")[0] for _, name in imports(path)}
        needs[here] = names & set(modules)
    TopologicalSorter(needs).prepare()


def test_only_web_makes_connections_to_the_outside() -> None:
    """None bypasses the guard. What others need of httpx is in archec.web.door."""
    clients = ("httpx.", "ftplib.", "urllib.request.", "http.client.HTTPConnection.", "ssl.", "aiohttp.", "requests.")
    found = [
        f"{path}:{line}: {name}"
        for path in PACKAGE.rglob("*.py")
        for line, name in imports(path)
        if room_of(path) != "web" and f"{name}.".startswith(clients)
    ]
    assert found == []


def test_no_socket_outside_web_connects() -> None:
    """Sockets elsewhere listen, or join processes. (SQLite and MongoDB's driver open the databases that are
    configured.)"""
    connecting = re.compile(r"(?<!sqlite3)[.](connect|connect_ex|create_connection|open_connection|urlopen)\(")
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        if room_of(path) not in ("web", "catalogue", "oai")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if connecting.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("archec.cli.main", {"archec.archive.opening", "archec.config.model", "yaml"}),
        ("archec.cli.get", {"archec.fileset", "archec.web", "asyncio", "lxml", "warcio"}),
        ("archec.cli.gather", {"anyio", "asyncio", "http.client", "lxml", "ssl", "statistics", "warcio"}),
        ("archec.web.fetcher", {"anyio", "http.client", "lxml", "warcio", "yaml"}),
        ("archec.text.checksum", {"archec.web", "asyncio", "lxml", "yaml"}),
        ("archec.access.build", {"redis"}),
    ],
)
def test_what_is_slow_to_import_is_imported_where_it_is_needed(module: str, slow: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not slow & set(told.stdout.split())
