"""``archec redif``: templates parsed, with what is wrong in them; a lint for archive maintainers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from archec.cli.common import config_option, json_option
from archec.config import DEFAULT_FILE, Config, load
from archec.errors import DataSetError, Exit
from archec.redif.lint import lint_file, lint_stream
from archec.redif.problems import Problem
from archec.redif.template import Template
from archec.redif.template import as_json as template_value
from archec.terminal.output import echo, echo_json, note, shown


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--quiet", is_flag=True, help="Print problems only, no templates.")
@click.option("--strict", is_flag=True, help="Exit with 1 if there is any problem.")
@json_option
@config_option
@click.pass_context
def redif(
    context: click.Context, files: tuple[Path, ...], quiet: bool, strict: bool, as_json: bool, config_file: Path | None
) -> None:
    """Parse ReDIF files and print their templates and problems.

    Every problem with file and line; - is stdin. Needs no archive. A FILE that cannot be opened is reported, the
    others are read, and the exit code is 1. With --json one object per line: {"type": "template", ...} or {"type":
    "problem", ...}.
    """
    config = load(config_file) if config_file or Path(DEFAULT_FILE).exists() else Config()
    kinds: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    unread = 0
    for file in files:
        try:
            for item in _linted(file, config.max_template_file):
                if isinstance(item, Problem):
                    codes[item.code] += 1
                    _problem(item, as_json)
                else:
                    kinds[item.kind] += 1
                    if not quiet:
                        _template(file, item, as_json)
        except DataSetError as error:
            unread += 1
            note(error)
    found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    wrong = ", ".join(f"{count} {code}" for code, count in sorted(codes.items())) or "none"
    click.echo(f"templates: {shown(found)}\nproblems: {wrong}", err=True)
    if unread or (strict and codes):
        context.exit(int(Exit.OPERATOR_ERROR))


def _linted(file: Path, max_file: int) -> Iterator[Template | Problem]:
    if str(file) == "-":
        with open(0, "rb", closefd=False) as stdin:
            yield from lint_stream(stdin, "-", max_file=max_file)
    elif file.is_dir():
        raise DataSetError(f"{file}: is a directory", hint="name its files: archec redif DIRECTORY/*.rdf")
    else:
        yield from lint_file(file, max_file=max_file)


def _problem(problem: Problem, as_json: bool) -> None:
    if as_json:
        echo_json(
            {
                "type": "problem",
                "path": problem.path,
                "line": problem.line,
                "code": problem.code,
                "message": problem.message,
            }
        )
        return
    place = f"{problem.path}:{problem.line}" if problem.line else problem.path
    echo(f"{place}: {problem.code}: {problem.message}")


def _template(file: Path, template: Template, as_json: bool) -> None:
    if as_json:
        value = template_value(template)
        value.pop("problems", None)
        echo_json({"type": "template", "path": str(file), **value})
        return
    echo(f"{file}:{template.line}: {template.kind} {template.id or '(no handle)'}")
    if template.title:
        echo(f"    {template.title}")
    for refipo in template.refipos:
        echo(f"    {refipo.url_raw}{'  ' + refipo.format if refipo.format else ''}")



