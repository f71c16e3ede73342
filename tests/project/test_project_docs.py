"""The documents say what is there: settings, commands, codes, errors, formats, links."""

from __future__ import annotations

import gzip
import inspect
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner
from gather_support import commands
from readme_blocks import README, ROOT, Played, blocks

from archec import config, errors
from archec.catalogue import journal_lines
from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.cli.main import cli
from archec.errors import ArchecError, Exit
from archec.redif.problems import CODES
from archec.redif.template import as_json, parse
from archec.store.layout import create
from archec.web.outcome import Outcome

DOCS = [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FORMATS = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def section(text: str, title: str) -> str:
    """The text below a heading, to the next one of its level."""
    level, _, _ = title.partition(" ")
    return text.partition(f"\n{title}\n")[2].partition(f"\n{level} ")[0]


def words(text: str) -> set[str]:
    """What stands in backticks, cut at blanks."""
    return {word for span in SPAN.findall(text) for word in span.split()}


# -- settings, commands, codes, errors ------------------------------------------------------------


def test_the_shipped_configuration_is_the_table_of_settings() -> None:
    assert (ROOT / "config.yaml").read_text(encoding="utf-8") == config.as_yaml()


def test_settings_that_the_docs_name_exist() -> None:
    known = set(config.setting_names())
    groups = {name.partition(".")[0] for name in known if "." in name}
    for path in DOCS:
        for word in words(path.read_text(encoding="utf-8")):
            group, dot, name = word.partition(".")
            if dot and group in groups and re.fullmatch("[a-z_]+", name):
                assert word in known, f"{path.name}: no setting {word}"


def test_exit_codes() -> None:
    listed = re.findall(r"^\| ([0-9]+) \| ([^|]+) \| ([^|]+) \|$", section(OPERATIONS, "## Exit codes"), re.M)
    assert [int(code) for code, _, _ in listed] == [int(code) for code in Exit]
    in_help = re.findall(r"\b[0-9]+\b", cli.epilog or "")
    assert [int(code) for code in in_help] == [int(code) for code in Exit]


def error_classes() -> dict[str, type[ArchecError]]:
    found = vars(errors).values()
    return {item.__name__: item for item in found if isinstance(item, type) and issubclass(item, ArchecError)}


def test_the_tree_of_errors_has_every_class_under_its_base_with_its_code() -> None:
    drawn = re.findall(r"^    ([ |]*)(?:\+-- )?([A-Z]\w+) +exit ([0-9]+) ", errors.__doc__ or "", re.M)
    assert sorted(name for _, name, _ in drawn) == sorted(error_classes())
    path: list[tuple[int, str]] = []
    for indent, name, code in drawn:
        cls = error_classes()[name]
        while path and path[-1][0] >= len(indent):
            path.pop()
        assert cls.__bases__ == ((error_classes()[path[-1][1]],) if path else (Exception,)), name
        assert int(cls.exit_code) == int(code), name
        path.append((len(indent), name))


def command_lines() -> Iterator[tuple[str, str]]:
    """Every command line of archec in the docs: those in blocks and those within the text."""
    for path in DOCS:
        text = path.read_text(encoding="utf-8")
        for block in blocks(text):
            if block.mark.startswith(("sh", "crontab")):
                for line in block.text.splitlines():
                    for found in re.findall(r"(?:^|[\s/])archec ([^|>&#]+)", line):
                        yield path.name, found
        for span in SPAN.findall(text):
            if span.startswith("archec "):
                yield path.name, span.removeprefix("archec ")


def test_command_lines_of_the_docs_exist() -> None:
    lines, known = list(command_lines()), dict(commands())
    assert len(lines) > 20
    for where, line in lines:
        name, *arguments = shlex.split(line)
        assert name in known, f"{where}: archec {line}"
        while isinstance(known[name], click.Group) and arguments and not arguments[0].startswith("-"):
            name += f" {arguments.pop(0)}"
            assert name in known, f"{where}: archec {line}"
        command = known[name]
        options = {option for param in command.params for option in param.opts}
        for argument in arguments:
            if argument.startswith("-"):
                assert argument in options, f"{where}: archec {line}"


def test_every_option_says_what_it_does() -> None:
    for name, command in commands():
        assert command.help, name
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                assert param.help, f"{name} {param.opts[0]}"


# -- links ----------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors that a page's headings get."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), f"{path.name}: {target}"
        assert not anchor or anchor in anchors(page), f"{path.name}: {target}"


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_pages_that_are_named_exist(path: Path) -> None:
    named = r"(?<![\w/])((?:docs|scripts|tests|archec|data)/[\w./-]+\.(?:md|py|yaml))\b"
    for name in re.findall(named, path.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), f"{path.name}: {name}"


# -- formats --------------------------------------------------------------------------------------


def test_layout_descriptor(tmp_path: Path) -> None:
    (shown,) = [block.text for block in blocks(FORMATS) if block.mark == "json layout"]
    assert (create(tmp_path / "archive").root / "layout.json").read_text(encoding="utf-8") == shown


def test_examples_of_names() -> None:
    from archec.store.layout import Layout

    rows = re.findall(r"^\| ([0-9]+) \| `(.+)` \| `(.+)` \|$", section(FORMATS, "## Names"), re.M)
    assert len(rows) == 3
    for tist, obi, path in rows:
        assert Layout(Path()).path(int(tist), obi) == path


TYPES = [kind.__struct_config__.tag for kind in get_args(journal_lines.Record)]
"""The types of journal lines."""


def journal(folder: Path) -> list[dict[str, Any]]:
    """Every line of every journal of an archive."""
    lines: list[dict[str, Any]] = []
    for path in sorted((folder / "archive" / "runs").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines += [json.loads(line) for line in file]
    return lines


def test_journal_lines_are_documented_with_every_key(played: Played) -> None:
    text = section(FORMATS, "## Journals")
    types = re.findall(r"^\| `([a-z-]+)` \| ", text.partition("### ")[0], re.M)
    assert set(types) == {*TYPES, "batch"}
    in_source = re.findall(r"^``([a-z-]+)`` ", journal_lines.__doc__ or "", re.M)
    assert sorted(in_source) == sorted(TYPES)
    known = words(text)
    lines = journal(played.folder)
    assert {line["type"] for line in lines} >= {"run", "obi", "set", "data-set", "end", "batch"}
    for line in lines:
        for name in keys(line, "report", "put"):
            assert name in known, f"{line['type']}: {name}"


def keys(value: object, *closed: str) -> Iterator[str]:
    """The keys of a JSON value at all levels, but those that are tists or checksums; ``closed`` are not looked into."""
    if isinstance(value, list):
        for item in value:
            yield from keys(item, *closed)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if not re.fullmatch(r"[0-9]+|[0-9a-f]{64}", name):
                yield name
            if name not in closed:
                yield from keys(inner, *closed)


def test_outcomes_are_documented() -> None:
    table = section(FORMATS, "### obi")
    assert re.findall(r"^\| `([a-z-]+)` \| ", table, re.M) == [str(outcome) for outcome in Outcome]


def test_the_dump_is_documented_with_every_key(played: Played) -> None:
    known = words(section(FORMATS, "## The dump")) | words(section(FORMATS, "## Journals"))
    collections = set(re.findall(r"^\| `([a-z_]+)` \| ", section(FORMATS, "## The dump"), re.M))
    catalogue = open_catalogue("sqlite:///data/catalogue.sqlite", base=played.folder)
    try:
        lines = [json.loads(line) for everything in (False, True) for line in dump(catalogue, everything=everything)]
    finally:
        catalogue.close()
    # The demo has no filesets, none of its hosts was in trouble, and no losses were held back.
    others = {"mf", "manifests", "ingests", "hosts", "held_back"}
    assert {line["collection"] for line in lines} | {"collection"} | others == collections
    for line in lines:
        for name in keys(line, "partial"):
            assert name in known, f"{line['collection']}: {name}"


def test_the_report_is_documented_with_every_key(played: Played) -> None:
    text = section(FORMATS, "## Reports")
    ends = [line["report"] for line in journal(played.folder) if line["type"] == "end"]
    listed = {word for row in re.findall(r"^\| (`.+?`) \| ", text, re.M) for word in words(row)}
    assert listed == set(ends[-1])
    known = words(FORMATS)
    for report in ends:
        for name in keys(report, "by_type", "by_code", "held_back", "seconds"):
            assert name in known, name


def test_json_is_documented_with_every_key(played: Played, tmp_path: Path) -> None:
    shutil.copytree(played.folder, tmp_path / "demo", symlinks=True)
    paper = "RePEc:dmo:wpaper:2011-11"
    lines = [
        ["history", paper, "--why"], ["find", "--text", str(next(tmp_path.rglob("*%3A2011-11")))], ["lost"],
        ["lost", "--returned"], ["changes"], ["coverage"], ["losses"],
        ["runs"], ["runs", "last"], ["status"], ["check"], ["verify"], ["rebuild"], ["seal"],
        ["access", "token", "create", "reader"], ["access", "token", "list"],
        ["access", "explain", paper, "--token", "reader"], ["retract", "last", "--reason", "a test"],
        ["retract", "last", "--visits", "--reason", "a test"],
    ]  # fmt: skip
    known = set().union(*(words(path.read_text(encoding="utf-8")) for path in DOCS))
    open_ended = ("options", "by_type", "by_code", "seconds", "report")
    for line in lines:
        done = CliRunner().invoke(cli, [*line, "--json", "--config", str(tmp_path / "demo" / "config.yaml")])
        assert done.exit_code == 0, (line, done.output)
        for row in done.stdout.splitlines():
            for name in keys(json.loads(row), *open_ended):
                assert name in known, f"archec {' '.join(line)}: {name}"


def test_problem_codes_are_documented() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", section(FORMATS, "## Templates"), re.M)
    assert [row for row in rows if row[0] in CODES or "-" in row[0]] == list(CODES.items())


def test_templates_are_documented_with_every_key() -> None:
    text = (
        "Template-Type: ReDIF-Paper 1.0\nAuthor-Name: A\nAuthor-Workplace-Name: B\nTitle: C\n"
        "File-URL: http://d.example/\nFile-Format: e\nFile-Function: f\nFile-Size: g\nFile-Restriction: h\n"
        "Handle: RePEc:i:j:k\nHandle: RePEc:i:j:l\n"
    )
    value = as_json(parse(text))
    listed = re.findall(r"^\| (`.+?`) \| ", section(FORMATS, "## Templates"), re.M)
    assert {word for row in listed for word in words(row)} - set(CODES) == set(value)
    known = words(section(FORMATS, "## Templates"))
    for name in keys(value):
        assert name in known, name


def test_every_module_says_what_it_is() -> None:
    for path in sorted((ROOT / "archec").rglob("*.py")):
        if path.stat().st_size:
            first = inspect.cleandoc(path.read_text(encoding="utf-8")).lstrip("#!\n")
            assert first.startswith(('"""', 'r"""')), path


def test_every_module_is_in_the_guide_to_its_package() -> None:
    """And the guide names no other. A command has a file of its name, and ``archec.cli`` is not listed."""
    guide = section((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), "## The packages")
    named, known = set(re.findall(r"(?<!\*)\*([a-z_0-9]+)\*(?!\*)", guide)), set[str]()
    for package in sorted(path.parent for path in (ROOT / "archec").glob("*/__init__.py")):
        modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
        paragraph = next(one for one in guide.split("\n**`")[1:] if package.name in one.partition("**")[0].split("`"))
        missing = [name for name in sorted(modules) if f"*{name}*" not in paragraph]
        assert package.name == "cli" or not missing, (package.name, missing)
        known |= modules
    assert named <= known, sorted(named - known)
