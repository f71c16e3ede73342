"""Finds every problem of ReDIF files with its line, for the maintainer of the archive.

The rules for values come from ReDIF version 1, and from what RePEc's services accept.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from archec.errors import DataSetError, hint_of
from archec.ids import archive_of, series_of
from archec.redif.files import PART, Blob, Unread, in_parts, is_template_name
from archec.redif.precedence import below_root, is_below_root, misplaced, rank, standing
from archec.redif.problems import Problem, shown
from archec.redif.scan import FOUND_BY_SCAN, decode, scan, template_starts
from archec.redif.schema import KINDS, REQUIRED, Family, spec_of, usual_specs
from archec.redif.source import read_file
from archec.redif.template import Template, fobis, parse_blob

_MAX_HANDLE = 120
_HANDLE_SIGNS = re.compile(r"[A-Za-z0-9!\"%&'()*+,\-./:<>=?@\\_`{}~]+")
_WORD = re.compile(r"^([A-Za-z][A-Za-z0-9#-]{2,40})[ \t]*:(?!//)", re.M)
_LIKE_A_FIELD = re.compile(r"[A-Z][A-Za-z0-9]*(?:-[A-Za-z0-9#]+)+|DOI|URL")
_INDENTED = re.compile(r"^[^\S\n]+template-type[ \t]*:", re.M | re.I)
_HANDLE = ("Handle",)
"""A template without a handle has the problem ``no-handle`` instead."""
_PARTS = {"ReDIF-Archive": 2, "ReDIF-Series": 3}
_CLOSE = 0.8
"""Minimum similarity of two names (difflib's ratio) for one to be a misspelling of the other."""
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
_EMAIL = re.compile(r"[^\s@<>,;\"]+@[A-Za-z0-9](?:[A-Za-z0-9-]*\.)+[A-Za-z]{2,}")
_JEL = re.compile(r"[A-Z](?:[0-9]{1,2})?", re.I)
_MIME = re.compile(
    r"(?:application|audio|chemical|font|image|message|model|multipart|text|video|x-[a-z]+)/"
    r"[a-z0-9][a-z0-9.+-]*(?:\s*;.*)?",
    re.I,
)
_INSTITUTION = re.compile(r"RePEc:edi:[a-z0-9]{7}", re.I)
_STATUS = re.compile(r"(?:published|forthcoming)\b", re.I)
_SERIES_TYPES = tuple(name for name, family in KINDS.values() if family == "work")
_VERSION = "1.0"
SINGLE: Mapping[Family, frozenset[str]] = {
    "work": frozenset((
        "Title", "Number", "Creation-Date", "Publication-Date", "Publication-Status", "Length", "Series", "Price",
        "Journal", "Volume", "Year", "Issue", "Month", "Pages", "Edition", "Book-Title", "Chapter",
    )),
    "series": frozenset(("Name", "Type", "Maintainer-Name", "Maintainer-Email", "ISSN", "Price")),
    "archive": frozenset(("Name", "URL", "Maintainer-Name", "Maintainer-Email")),
    "person": frozenset(("Name-Full", "Name-First", "Name-Last", "Short-Id")),
    "institution": frozenset(),
    "other": frozenset(),
}


MOST_HANDLES = 500_000
"""Maximum number of handles remembered from file to file: some 150 MB."""


class Lint:
    """The problems of several files, which are read one after the other.

    Files of more than ``max_file`` bytes are not read. ``counts`` decides which names are those of template files;
    files with other names are read as well. Repeated handles, and ids that differ only in their Unicode composition,
    are found across all files. ``forgot``: there were more than :data:`MOST_HANDLES` handles, so those of later files
    were not compared with all previous ones.
    """

    def __init__(self, *, max_file: int, counts: Callable[[str], bool] = is_template_name) -> None:
        self._max_file = max_file
        self._counts = counts
        self._composed: dict[str, str] = {}
        self._seen: dict[str, _SeenTemplate] = {}
        self.forgot = False

    def stream(self, stream: BinaryIO, name: str) -> Iterator[Template | Problem]:
        """Like :meth:`file`, for a pipe; ``name`` is the path in problems."""
        self._make_room()
        data = stream.read(self._max_file + 1)
        if len(data) > self._max_file:
            yield Problem(shown(name), 0, "too-large", f"more than max_file = {self._max_file} bytes")
            return
        for item in in_parts(name, 0, iter([data])) if len(data) > PART else [Blob(name, data)]:
            yield from self._item(item)

    def file(self, path: Path) -> Iterator[Template | Problem]:
        """The templates of a file, each followed by its problems; problems of the file itself come last.

        The problems of a template include ``template.problems``; none is yielded twice. Raises DataSetError if the
        file cannot be opened; anything else that is wrong is a problem.
        """
        self._make_room()
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise DataSetError(f"cannot open {path}: {error.strerror}", hint=hint_of(error, path)) from error
        except ValueError as error:
            raise DataSetError(f"cannot open {path}: {error}") from error
        try:
            for item in read_file(file, os.fstat(file), str(path), 0, self._max_file):
                yield from self._item(item)
        finally:
            os.close(file)
        if not self._counts(str(path)):
            message = "the name does not end in .rdf or .redif: RePEc does not read this file"
            yield Problem(shown(str(path)), 0, "other-name", message)
        yield from self._unicode_form(str(path), str(path), 0, "path")

    def _make_room(self) -> None:
        """Forgets all handles if there are too many for memory."""
        if len(self._seen) > MOST_HANDLES:
            self._seen.clear()
            self.forgot = True

    def _item(self, item: Blob | Unread) -> Iterator[Template | Problem]:
        if isinstance(item, Unread):
            yield item.problem
        else:
            yield from self._blob(item)

    def _blob(self, blob: Blob) -> Iterator[Template | Problem]:
        raws, problems, encoding, _ = scan(blob)
        for template in parse_blob(blob):
            yield template
            yield from template.problems
            yield from _template_problems(template, blob.path)
            if template.id:
                this = _SeenTemplate(blob.path, template.line, standing(template.handle, template.id, blob.path))
                other = self._seen.setdefault(template.id, this)
                if other is this:
                    yield from self._unicode_form(template.id, blob.path, template.line, "handle")
                else:
                    self._seen[template.id], problem = _duplicate(template.id, other, this)
                    yield problem
        yield from (problem for problem in problems if problem.code not in FOUND_BY_SCAN)
        if encoding == "cp1252":
            message = "neither UTF-8 nor marked as something else; read as cp1252"
            yield Problem(shown(blob.path), 0, "encoding-guess", message)
        if blob.part == 0:
            data = decode(blob.data, blob.encoding).data
            before = data[: next(iter(template_starts(data.lower())), None)]
            yield from _indented(before.decode("utf-8"), shown(blob.path), 1)
            if raws and any(line.strip() and line[:1] != b"#" for line in before.split(b"\n")):
                message = "text before the first template is ignored"
                yield Problem(shown(blob.path), 1, "text-before-template", message)

    def _unicode_form(self, name: str, path: str, line: int, what: str) -> Iterator[Problem]:
        """Reports a handle or path that looks like another one but differs."""
        if name.isascii():
            return
        other = self._composed.setdefault(unicodedata.normalize("NFC", name), name)
        if other != name:
            message = f"the {what} {name!a} looks like {other!a}: write both in the same Unicode form (NFC)"
            yield Problem(shown(path), line, "unicode-form", message)


class _SeenTemplate(NamedTuple):
    """The place of a template, and its rank for its handle."""

    path: str
    line: int
    standing: int


def _duplicate(handle: str, first: _SeenTemplate, second: _SeenTemplate) -> tuple[_SeenTemplate, Problem]:
    """The winner of two templates with one handle, and the problem of the other. ``first`` wins if that cannot be
    known, because a path does not show where in RePEc its file is."""
    same_file = first.path == second.path
    known = same_file or (is_below_root(first.path) and is_below_root(second.path))
    wins, loses = first, second
    if known and _rank(second) > _rank(first):
        wins, loses = second, first
    where = f"line {wins.line}" if same_file else f"{shown(wins.path)}:{wins.line}"
    message = f"{handle} is the handle of the template in {where} as well{', which counts' if known else ''}"
    return wins, Problem(shown(loses.path), loses.line, "duplicate", message)


def _rank(seen: _SeenTemplate) -> tuple[int, bytes, int, int]:
    return rank(seen.standing, below_root(seen.path).encode(), 0, seen.line)


def _template_problems(template: Template, path: str) -> Iterator[Problem]:
    where, line = shown(path), template.line
    if template.family == "other":
        yield Problem(where, line, "unknown-type", f"{template.kind!r} is not a template type of ReDIF")
    elif trouble := version_trouble(template.version):
        yield Problem(where, line, "bad-value", f"Template-Type {trouble}")
    for names in REQUIRED.get(template.kind, ()):
        if names != _HANDLE and not any(template.get(name) for name in names):
            what = " or ".join(names)
            which = f"{template.kind} {template.id}".strip()
            yield Problem(where, line, "missing-field", f"{which} has no {what}")
    if template.id:
        yield from _handle_problems(template, path)
    yield from _field_problems(template, where)
    yield from (found for found in fobis(template, path) if isinstance(found, Problem))


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
    if handle.lower() != template.id.lower():
        yield f"it has HTML in it; read as {template.id}"
    elif handle != template.handle:
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


def _field_problems(template: Template, where: str) -> Iterator[Problem]:
    first: dict[str, int] = {}
    times: Counter[str] = Counter()
    for one, raw in zip(template.fields, template.raws, strict=True):
        spec = spec_of(template.family, one.name)
        if spec is not None and not spec.listed:
            message = f"{template.kind} has no field {one.name}{_did_you_mean(template.family, one.name)}"
            yield Problem(where, one.line, "unknown-field", message)
        if trouble := trouble_of(template.family, one.name, one.value):
            yield Problem(where, one.line, "bad-value", f"{one.name}: {one.value[:100]!r} {trouble}")
        if one.name in SINGLE[template.family] and one.value:
            times[one.name] += 1
            if times[one.name] == 2:
                message = f"{one.name} is already given in line {first[one.name]}; a template has only one"
                yield Problem(where, one.line, "repeated-field", message)
            first.setdefault(one.name, one.line)
        if "\n" in raw:
            yield from _swallowed(template, one.name, raw, one.line, where)


def _swallowed(template: Template, name: str, raw: str, first: int, where: str) -> Iterator[Problem]:
    """Reports lines in the value of a field that were meant to be fields or templates."""
    for match in _WORD.finditer(raw, raw.index("\n") + 1):
        hint = _did_you_mean(template.family, match[1])
        if hint or _LIKE_A_FIELD.fullmatch(match[1]):
            line = first + raw.count("\n", 0, match.start())
            message = f"{template.kind} has no field {match[1]}; the line is taken as part of {name}{hint}"
            yield Problem(where, line, "unknown-field", message)
    yield from _indented(raw, where, first)


def _indented(text: str, where: str, first: int) -> Iterator[Problem]:
    """Reports Template-Type lines that begin with white space: the template becomes part of what precedes it."""
    for match in _INDENTED.finditer(text):
        message = "Template-Type must begin its line: this template is taken as part of what comes before it"
        line = first + text.count("\n", 0, match.start())
        yield Problem(where, line, "indented-template", message)


def _did_you_mean(family: Family, name: str) -> str:
    likely = _likely(family, name)
    return f"; did you mean {likely}?" if likely else ""


@lru_cache(maxsize=4096)
def _likely(family: Family, name: str) -> str:
    """The field of which a name may be a misspelling, ``""`` if there is none. Hyphens and case are ignored."""
    if family == "other":
        return ""
    specs = [spec for spec in usual_specs(family).values() if spec.listed]
    known = {spec.prefix.replace("-", "").lower(): spec.name for spec in specs if spec.key}
    known |= {spec.name.replace("-", "").lower(): spec.name for spec in specs}
    bare = name.replace("-", "").replace("_", "").lower()
    close = [bare] if bare in known else get_close_matches(bare, known, 1, _CLOSE)
    return known[close[0]] if close else ""


def trouble_of(family: Family, name: str, value: str) -> str:
    """What is wrong with the value of a field (canonical name), ``""`` if nothing is or the value is empty."""
    leaf = name.rpartition("-")[2]
    if not value:
        return ""
    if leaf == "Date":
        return "" if _is_date(value) else "is not a date: write 2009, 2009-05 or 2009-05-31"
    if leaf == "Email":
        return "" if _EMAIL.fullmatch(value) else "is not one e-mail address"
    if name == "Classification-JEL":
        odd = [code for code in re.split(r"[\s,;.]+", value) if code and not _JEL.fullmatch(code)]
        return f"has {odd[0]!r}, which is no JEL code such as C12" if odd else ""
    if name.endswith("File-Format"):
        return "" if _MIME.fullmatch(value) else "is not a MIME type such as application/pdf"
    if leaf == "Institution":
        return "" if _INSTITUTION.fullmatch(value) else "is not the handle of an institution such as RePEc:edi:abcdeus"
    if name == "Type" and family == "series":
        return "" if value in _SERIES_TYPES else f"is not one of {', '.join(_SERIES_TYPES)}"
    if name == "Publication-Status":
        return "" if _STATUS.match(value) else "does not begin with Published or Forthcoming"
    return ""


def version_trouble(version: str) -> str:
    """What is wrong with the version in a ``Template-Type`` of a known type; empty if nothing is."""
    if version == _VERSION:
        return ""
    return f"has the version {version}, not {_VERSION}" if version else f"has no version: write {_VERSION} behind it"


def _is_date(value: str) -> bool:
    match = _DATE.fullmatch(value)
    if match is None:
        return False
    try:
        date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return False
    return True
