"""Every problem of a ReDIF file with its line, for the maintainer of the archive."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from archec.errors import DataSetError
from archec.ids import archive_of, series_of
from archec.redif.encoding import decode
from archec.redif.handles import misplaced
from archec.redif.items import PART, Blob, Unread, in_parts
from archec.redif.problems import Problem, shown
from archec.redif.scan import FOUND_BY_SCAN, scan
from archec.redif.schema import REQUIRED, spec_of
from archec.redif.source import read_file
from archec.redif.template import Template, fobi_of, parse_blob

_MAX_HANDLE = 120
_HANDLE_SIGNS = re.compile(r"[A-Za-z0-9!\"%&'()*+,\-./:<>=?@\\_`{}~]+")
_LIKE_A_FIELD = re.compile(r"^([A-Z][A-Za-z0-9]*(?:-[A-Za-z0-9#]+)+|DOI|URL)[ \t]*:", re.M)
_PARTS = {"ReDIF-Archive": 2, "ReDIF-Series": 3}


def lint_stream(stream: BinaryIO, name: str, *, max_file: int) -> Iterator[Template | Problem]:
    """The same as :func:`lint_file` for a pipe; ``name`` is the path in problems."""
    data = stream.read(max_file + 1)
    if len(data) > max_file:
        yield Problem(shown(name), 0, "too-large", f"more than max_file = {max_file} bytes")
        return
    seen: dict[str, int] = {}
    for item in in_parts(name, 0, iter([data])) if len(data) > PART else [Blob(name, data, 0, True, 1, 0)]:
        if isinstance(item, Unread):
            yield item.problem
        else:
            yield from _lint_blob(item, seen)


def lint_file(path: Path, *, max_file: int) -> Iterator[Template | Problem]:
    """The templates of a file, each followed by its problems; problems of the file itself come last.

    The problems of a template include ``template.problems``; none is yielded twice. Raises DataSetError if the file
    cannot be opened; anything else that is wrong is a problem.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise DataSetError(f"cannot open {path}: {getattr(error, 'strerror', None) or error}") from error
    seen: dict[str, int] = {}
    try:
        for item in read_file(file, os.fstat(file), str(path), 0, max_file):
            if isinstance(item, Unread):
                yield item.problem
            else:
                yield from _lint_blob(item, seen)
    finally:
        os.close(file)


def _lint_blob(blob: Blob, seen: dict[str, int]) -> Iterator[Template | Problem]:
    raws, problems, encoding, _ = scan(blob)
    for template in parse_blob(blob):
        yield template
        yield from template.problems
        yield from _template_problems(template, blob.path)
        if template.id in seen:
            message = f"{template.id} is the handle of the template in line {seen[template.id]} as well"
            yield Problem(shown(blob.path), template.line, "duplicate", message)
        elif template.id:
            seen[template.id] = template.line
    yield from (problem for problem in problems if problem.code not in FOUND_BY_SCAN)
    if encoding == "cp1252":
        message = "neither UTF-8 nor marked as something else; read as cp1252"
        yield Problem(shown(blob.path), 0, "encoding-guess", message)
    if raws and blob.part == 0:
        data = decode(blob.data, blob.encoding).data
        ignored = data.find(raws[0].text[:13])
        if any(line.strip() and line[:1] != b"#" for line in data[:ignored].split(b"\n")):
            yield Problem(shown(blob.path), 1, "text-before-template", "text before the first template is ignored")


def _template_problems(template: Template, path: str) -> Iterator[Problem]:
    where, line = shown(path), template.line
    if template.family == "other":
        yield Problem(where, line, "unknown-type", f"{template.kind!r} is not a template type of ReDIF")
    for names in REQUIRED.get(template.kind, ()):
        if not any(template.get(name) for name in names):
            what = " or ".join(names)
            which = f"{template.kind} {template.id}".strip()
            yield Problem(where, line, "missing-field", f"{which} has no {what}")
    if template.id:
        yield from _handle_problems(template, path)
    yield from _unknown_fields(template, where)
    for refipo, at in zip(template.refipos, template.refipo_lines, strict=True):
        fobi = fobi_of(refipo, path, at, template.id)
        if isinstance(fobi, Problem):
            yield fobi


def _handle_problems(template: Template, path: str) -> Iterator[Problem]:
    handle, obi = "".join(template.handle.split()), template.id
    line = next((field.line for field in template.fields if field.name == "Handle" and field.value), template.line)
    for trouble in _handle_troubles(template, handle):
        yield Problem(shown(path), line, "bad-handle", f"{handle[:200]}: {trouble}")
    if template.family in ("person", "institution"):
        return
    if there := misplaced(obi, path):
        yield Problem(shown(path), line, "misplaced", f"{obi[:200]} belongs elsewhere than in {shown(there)}")


def _handle_troubles(template: Template, handle: str) -> Iterator[str]:
    if not handle.startswith("RePEc:"):
        yield "it does not begin with RePEc:"
    if handle != template.handle:
        yield "it has white space in it"
    if len(handle) > _MAX_HANDLE:
        yield f"it has {len(handle)} characters, more than {_MAX_HANDLE}"
    if not _HANDLE_SIGNS.fullmatch(handle):
        yield "it has characters that handles must not have"
    parts = template.id.split(":", 3)
    wanted = _PARTS.get(template.kind)
    if template.family == "other" or parts[0] != "RePEc":
        return
    if wanted is not None and len(parts) != wanted:
        yield f"the handle of {template.kind} has {wanted} parts"
    elif template.family == "work" and (len(parts) != 4 or not parts[3]):
        yield "the handle of a work has four parts: RePEc:aaa:ssssss:item"
    if len(archive_of(template.id)) != 3:
        yield "the archive code does not have three characters"
    if template.family in ("work", "series") and len(parts) > 2 and len(series_of(template.id)) != 6:
        yield "the series code does not have six characters"


def _unknown_fields(template: Template, where: str) -> Iterator[Problem]:
    for field, raw in zip(template.fields, template.raws, strict=True):
        spec = spec_of(template.family, field.name)
        if spec is not None and not spec.listed:
            yield Problem(where, field.line, "unknown-field", f"{template.kind} has no field {field.name}")
        for match in _LIKE_A_FIELD.finditer(raw, 1) if "\n" in raw else ():
            line = field.line + raw.count("\n", 0, match.start())
            message = f"{template.kind} has no field {match[1]}; the line is taken as part of {field.name}"
            yield Problem(where, line, "unknown-field", message)
