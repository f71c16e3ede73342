"""``archec redif``: parses templates and reports their problems; a linter for archive maintainers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from archec.cli.common import FILE, PATH, leave, load_or_default, report_options
from archec.config import Config
from archec.errors import DataSetError, Exit, UsageError
from archec.redif.files import template_names
from archec.redif.lint import MOST_HANDLES, Lint
from archec.redif.lintreport import LintSummary
from archec.redif.problems import Problem, shown
from archec.redif.template import Template
from archec.redif.template import as_json as template_value
from archec.store.durable import open_whole
from archec.terminal.output import echo, echo_json, note, show
from archec.units import listed


@click.command()
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@click.option("--quiet", is_flag=True, help="Print only problems, no templates.")
@click.option("--strict", is_flag=True, help="Exit with 1 if there is any problem.")
@click.option(
    "--report", type=FILE, metavar="FILE.html|FILE.md", help="Also write a report by archive, for its maintainer."
)
@report_options
def redif(
    files: tuple[Path, ...],
    quiet: bool,
    strict: bool,
    report: Path | None,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Parse ReDIF files and print their templates and problems.

    Every problem is shown with file and line; - is stdin. FILE may have any name, and no archive is needed. A FILE that
    cannot be opened is reported, the others are read, and the exit code is 1. With --json, prints one object per line:
    {"type": "template", ...} with its problems, {"type": "problem", ...}, and at the end {"type": "summary", ...}.

    Example: archec redif --quiet data/current/smp/wpaper/2024.redif
    """
    if report is not None and report.suffix.lower() not in (".html", ".md"):
        raise UsageError(f"{report}: a report is HTML or Markdown", hint="use FILE.html or FILE.md")
    config = load_or_default(config_file)
    lint = Lint(max_file=config.max_template_file, counts=template_names(config.template_files))
    summary = LintSummary()
    unread = 0
    for file in files:
        summary.file(_in_repec(config, file))
        try:
            for template, problems in _by_template(_linted(lint, file)):
                if template is not None:
                    summary.add(template)
                for problem in problems:
                    summary.add(problem)
                _print(file, template, problems, quiet=quiet, as_json=as_json)
        except DataSetError as error:
            unread += 1
            note(error)
    if lint.forgot:
        note(f"handles are compared with those of about {MOST_HANDLES:,} templates before them, not with all")
    if as_json:
        echo_json({"type": "summary", "archives": summary.as_value()})
    if report is not None:
        with open_whole(report) as output:
            output.write((summary.html() if report.suffix.lower() == ".html" else summary.markdown()).encode())
    codes = sum((one.codes for one in summary.archives.values()), Counter[str]())
    found, wrong = (listed(dict(sorted(counts.items()))) for counts in (summary.kinds, codes))
    for row in (f"templates: {found}", f"problems: {wrong}", *(summary.table() if codes else ())):
        note(row, prefix="")
    if unread or (strict and codes):
        leave(Exit.OPERATOR_ERROR)


def _in_repec(config: Config, file: Path) -> str:
    """The path of a file; if it is in the current data set, relative to its root as ``RePEc``."""
    data, there = config.data_path.absolute(), file.absolute()
    return f"RePEc/{there.relative_to(data)}" if data in there.parents else str(file)


def _linted(lint: Lint, file: Path) -> Iterator[Template | Problem]:
    if str(file) == "-":
        with open(0, "rb", closefd=False) as stdin:
            yield from lint.stream(stdin, "-")
    elif file.is_dir():
        raise DataSetError(f"{file}: is a directory", hint="give its files: archec redif DIRECTORY/*.rdf")
    else:
        yield from lint.file(file)


def _by_template(items: Iterator[Template | Problem]) -> Iterator[tuple[Template | None, list[Problem]]]:
    """Each template with its problems; problems before the first template are separate."""
    template: Template | None = None
    problems: list[Problem] = []
    for item in items:
        if isinstance(item, Problem):
            problems.append(item)
            continue
        if template is not None or problems:
            yield template, problems
        template, problems = item, []
    if template is not None or problems:
        yield template, problems


def _print(file: Path, template: Template | None, problems: list[Problem], *, quiet: bool, as_json: bool) -> None:
    own = [
        problem for problem in problems
        if template is not None and problem.line >= template.line and problem.path == shown(str(file))
    ]  # fmt: skip
    if template is not None and not quiet:
        if as_json:
            value = template_value(template) | {"problems": [problem.as_value() for problem in own]}
            echo_json({"type": "template", "path": str(file), **value})
            problems = [problem for problem in problems if problem not in own]
        else:
            _show(file, template)
    for problem in problems:
        show({"type": "problem", **problem.as_value()}, str(problem), as_json=as_json)


def _show(file: Path, template: Template) -> None:
    echo(f"{file}:{template.line}: {template.kind} {template.id or '(no handle)'}")
    if template.title:
        echo(f"    {template.title}")
    for refipo in template.refipos:
        echo(f"    {refipo.url_raw}{'  ' + refipo.format if refipo.format else ''}")
