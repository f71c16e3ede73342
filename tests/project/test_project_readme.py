"""README.md says what the program does: its command lines run, its outputs are real, its tables are whole."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import click
from readme_blocks import MARKS, README, ROOT, Played, alike, blocks, run_blocks

from archec.cli.main import cli
from archec.errors import Exit

TEXT = README.read_text(encoding="utf-8")
STALE = "README.md is out of date: run scripts/fill_readme.py and look at the difference"


def section(title: str) -> str:
    """The text below a heading of the second level."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_column(text: str) -> list[str]:
    """The first cells of the rows of all tables, without their backticks; heads and rules left out."""
    cells = [line.split("|")[1].strip(" `") for line in text.splitlines() if line.startswith("|")]
    return [cell for cell in cells if cell.strip("-") and cell not in ("code", "command", "package", "word")]


def test_every_block_says_how_it_is_tested() -> None:
    assert {block.mark for block in blocks(TEXT)} == MARKS


def test_the_first_steps_run_and_print_what_is_shown(tmp_path: Path) -> None:
    found = blocks(TEXT)
    printed = iter(run_blocks(found, tmp_path))
    last = ""
    for block in found:
        if block.mark == "sh run":
            last = next(printed)
        elif block.mark == "text output":
            assert alike(block.text) == alike(last), STALE


def test_what_is_shown_is_of_one_session() -> None:
    first, asked, *_ = (block.text for block in blocks(TEXT) if block.mark == "text output")
    (run,) = re.findall(r"^run +([0-9]+) ", first, re.M)
    assert set(re.findall(r"\b17[0-9]{8}\b", asked)) == {run}, STALE


def test_the_demo_prints_what_is_shown(played: Played) -> None:
    (shown,) = [block.text for block in blocks(TEXT) if block.mark == "text demo"]
    assert alike(shown) == alike(played.output), STALE


def test_what_ci_runs_is_in_its_script() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for block in blocks(TEXT):
        if block.mark == "sh ci":
            for line in block.text.splitlines():
                assert re.search(rf"\b{re.escape(line)}$", script, re.M), line


def test_every_command_is_in_the_table() -> None:
    assert first_column(section("Commands")) == [
        f"archec {name}" for name in cli.list_commands(click.Context(cli))
    ]


def test_every_exit_code_is_in_the_table() -> None:
    assert first_column(section("Exit codes")) == [str(int(code)) for code in Exit]


def test_every_dependency_is_in_the_table() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wanted = (setup["options"]["install_requires"], setup["options.extras_require"]["test"])
    names = [re.split(r"[ <>=;]", line)[0] for lines in wanted for line in lines.split("\n") if line]
    assert first_column(section("Dependencies")) == names
    for line in section("Dependencies").splitlines():
        if line.startswith("|"):
            assert all(cell.strip() for cell in line.strip("|").split("|")), f"an empty cell: {line}"
