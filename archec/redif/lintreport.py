"""The lint's summary by archive, and its report for maintainers in HTML or Markdown."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from archec.ids import archive_of
from archec.redif.precedence import is_below_root, place
from archec.redif.problems import CODES, WARNINGS, Problem
from archec.redif.template import Template
from archec.units import counted

_MOST = 1000
"""Maximum number of problems listed for an archive; all are counted."""
_markdown = partial(re.compile(r"([\\`*_{}\[\]<>#|])").sub, r"\\\1")
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "code{background:#eee}h3.error{color:#a00}table{border-collapse:collapse}td,th{padding:0 1em 0 0;text-align:left}"
)


@dataclass(slots=True)
class OfArchive:
    """The results for the files of one archive; ``problems`` are the first of them."""

    templates: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> int:
        return sum(count for code, count in self.codes.items() if code not in WARNINGS)

    @property
    def warnings(self) -> int:
        return sum(self.codes.values()) - self.errors


class LintSummary:
    """Counts the findings of the lint by archive: that of the file's path below a directory ``RePEc``, else that of the
    template's handle."""

    def __init__(self) -> None:
        self.archives: dict[str, OfArchive] = {}
        self.kinds: Counter[str] = Counter()
        self._here = OfArchive()
        self._code = ""

    def file(self, path: str) -> None:
        """Begins the next file."""
        self._code = place(path).archive if is_below_root(path) else ""
        self._here = self._of(self._code)

    def add(self, item: Template | Problem) -> None:
        """Counts a template, or a problem of the template before it or of the file."""
        if isinstance(item, Template):
            self._here = self._of(self._code or archive_of(item.id))
            self._here.templates += 1
            self.kinds[item.kind] += 1
        else:
            self._here.codes[item.code] += 1
            if len(self._here.problems) < _MOST:
                self._here.problems.append(item)

    def as_value(self) -> dict[str, object]:
        return {
            code: {
                "templates": one.templates,
                "errors": one.errors,
                "warnings": one.warnings,
                "codes": dict(sorted(one.codes.items())),
            }
            for code, one in self._listed()
        }

    def table(self) -> Iterator[str]:
        for code, one in self._listed():
            yield f"{code or '?'}: {_counts(one)}"

    def markdown(self) -> str:
        return "\n".join(self._report(_markdown, "# {}\n", "## {}\n", "### {}: {}\n\n{}\n", "- {}: {}", "")) + "\n"

    def html(self) -> str:
        body = self._report(
            html.escape, "<h1>{}</h1>", "<h2>{}</h2>", '<h3 class="{0}">{0}: {1}</h3><p>{2}</p><ul>',
            "<li><code>{}</code>: {}</li>", "</ul>",
        )  # fmt: skip
        head = f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>ReDIF</title><style>{_STYLE}</style>'
        return "\n".join([head, *body, "</html>"]) + "\n"

    def _report(
        self, escape: Callable[[str], str], title: str, archive: str, heading: str, line: str, end: str
    ) -> Iterator[str]:
        yield title.format("Problems of ReDIF files")
        for code, one in self._listed():
            counts = _counts(one)
            yield archive.format(escape(f"{'RePEc:' + code if code else 'files of no archive'}: {counts}"))
            by_code = sorted(one.problems, key=lambda problem: (problem.severity, problem.code))
            for problem_code, problems in groupby(by_code, key=lambda problem: problem.code):
                severity = "warning" if problem_code in WARNINGS else "error"
                yield heading.format(severity, escape(problem_code), escape(CODES[problem_code]))
                for problem in problems:
                    where = f"{problem.path}:{problem.line}" if problem.line else problem.path
                    yield line.format(escape(where), escape(problem.message))
                yield end
            if (left := sum(one.codes.values()) - len(one.problems)) > 0:
                yield escape(f"... and {left:,} more")

    def _of(self, code: str) -> OfArchive:
        return self.archives.setdefault(code, OfArchive())

    def _listed(self) -> list[tuple[str, OfArchive]]:
        return sorted((code, one) for code, one in self.archives.items() if one.templates or one.codes)


def _counts(one: OfArchive) -> str:
    templates, errors = counted(one.templates, "template"), counted(one.errors, "error")
    return f"{templates}, {errors}, {counted(one.warnings, 'warning')}"
