"""Parses a template: its type, fields, clusters and refipos. Also its canonical text, and whether a change of it is
cosmetic, one of File-URLs only, or another.

A line ``word: ...`` begins a field only if the template's type knows the word, by name or by the prefix of a cluster;
otherwise it continues the value above it (``Purpose:``, ``https://`` inside an abstract).

A cluster is a group of fields (an author and her workplaces, a file and its format). It begins at its key field
(``*-Name``, ``*-URL``), and includes the fields with its prefix that follow, until the next key. Fields that are
separated from their cluster still belong to it, and a field before any key opens a cluster without one: the
specification (ReDIF version 1, section 3) would drop the template, but archec does not drop what it can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise, repeat
from operator import itemgetter
from typing import Literal, NamedTuple, cast

from archec.errors import BadName
from archec.ids import is_url, normalise_url, without_userinfo
from archec.redif.files import Blob, with_lf
from archec.redif.problems import Problem, shown
from archec.redif.scan import decode, handle_in, id_of, template_starts
from archec.redif.schema import Family, Kind, Role, Spec, kind_of, spec_of, usual_specs

_NEXT = re.compile(r"\n([A-Za-z][A-Za-z0-9#-]{0,99})[ \t]*:")
_CONFLICT = ("<<<<<<<", ">>>>>>>", "=======", "||||||| ")
_TITLES: Mapping[Family, tuple[str, ...]] = {
    "work": ("Title",),
    "series": ("Name", "Title"),
    "archive": ("Name",),
    "person": ("Name-Full", "Name"),
    "institution": ("Primary-Name", "Name"),
    "other": ("Title", "Name", "Name-Full"),
}
"""The fields that may be the title of a template, by family; the first one with a value counts."""
_UNTIDY = (b" \n", b"\t\n", b"\n\n", b"\n#", b"\r", b"\x0b\n", b"\x0c\n")
_FILE_URL = re.compile(rb"(?:[A-Za-z0-9#-]*-)?file-url[ \t]*:", re.I)
_FIELD_LINE = re.compile(rb"([A-Za-z][A-Za-z0-9#-]*)[ \t]*:(?!//)")
_USUAL = 100
"""Maximum length of a ``Template-Type:`` whose meaning is cached, in characters."""
_MOST_REFIPOS = 100_000
"""Maximum number of characters of all refipos of one template, about a thousand files. The catalogue keeps them for
each version."""
_name = itemgetter(0)

Row = tuple[str, str]
"""Canonical name and value of a field: the cheapest form, used in templates and clusters."""


class Field(NamedTuple):
    """A field: canonical name, value with its continuation lines joined, line in the file."""

    name: str
    value: str
    line: int


class RawRefipo(NamedTuple):
    """A refipo as in a template, with ``""`` for missing fields.

    ``url_raw`` has no white space and no user information, and is not normalised.
    """

    url_raw: str
    format: str = ""
    function: str = ""
    size: str = ""
    restriction: str = ""


class Cluster(NamedTuple):
    """A person, an organisation or a file inside a template.

    ``prefix`` is the common prefix of its field names (``Author``, ``Author-Workplace``, ``File``). ``rows`` are
    its own fields, as pairs of the whole canonical name and the value; ``clusters`` are the clusters inside it.
    """

    role: Role
    prefix: str
    rows: Sequence[Row]
    clusters: Sequence[Cluster] = ()

    def get(self, leaf: str) -> str:
        """The first value of the field ``<prefix>-<leaf>`` that is not empty, or ``""``."""
        wanted = f"{self.prefix}-{leaf}"
        return next((value for name, value in self.rows if name == wanted and value), "")

    @property
    def name(self) -> str:
        return self.get("Name")

    def refipo(self) -> RawRefipo:
        """The refipo of a file cluster. If a field is repeated, its first value counts."""
        first = {name: value for name, value in reversed(self.rows) if value}
        leaves = ("URL", "Format", "Function", "Size", "Restriction")
        url, *others = [first.get(f"{self.prefix}-{leaf}", "") for leaf in leaves]
        url = "".join(url.split())
        return RawRefipo(without_userinfo(url) if "@" in url else url, *others)


class Template(NamedTuple):
    """A parsed template.

    ``kind`` is the canonical type (``ReDIF-Paper``), or the type as written if it is unknown; ``family`` is then
    ``other``. ``handle`` is the handle as written and ``id`` its normalised form; ``line`` is where the template
    begins in its file. The fields are columns of equal length, in order: canonical ``names``, ``values`` with their
    continuation lines joined, and ``raws``, everything after the colon. ``clusters`` are the persons, organisations
    and files, nested.
    """

    kind: str
    version: str
    family: Family
    handle: str
    id: str
    line: int
    names: Sequence[str]
    values: Sequence[str]
    raws: Sequence[str]
    clusters: tuple[Cluster, ...]
    problems: tuple[Problem, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields in order, those of clusters included, with their lines in the file."""
        return tuple(map(Field, self.names, self.values, _lines(self.raws, self.line)))

    @property
    def title(self) -> str:
        """The Title, Name or Name-Full, depending on the type."""
        return next(filter(None, map(self.get, _TITLES[self.family])), "")

    @property
    def refipos(self) -> tuple[RawRefipo, ...]:
        """The refipos in order, with URLs as written."""
        return tuple(cluster.refipo() for cluster in self.clusters if cluster.role == "file")

    @property
    def refipo_lines(self) -> tuple[int, ...]:
        """The lines of the file in which the ``refipos`` begin."""
        lines = iter([field.line for field in self.fields if field.name.endswith("File-URL")])
        files = (cluster for cluster in self.clusters if cluster.role == "file")
        return tuple(next(lines, self.line) if one.rows[0][0].endswith("File-URL") else self.line for one in files)

    def get(self, name: str) -> str:
        """The first value of a field (canonical name) that is not empty, or ``""``."""
        return next((value for one, value in zip(self.names, self.values, strict=True) if one == name and value), "")

    def all(self, name: str) -> tuple[str, ...]:
        """Every value of a field (canonical name) that is not empty."""
        return tuple(value for one, value in zip(self.names, self.values, strict=True) if one == name and value)

    def clusters_of(self, prefix: str) -> tuple[Cluster, ...]:
        """The clusters with a prefix (``Author``, ``File``), in order."""
        return tuple(cluster for cluster in self.clusters if cluster.prefix == prefix)


def parse(text: str, *, path: str = "", first_line: int = 1) -> Template:
    """Parses the template in ``text``, which begins with its ``Template-Type:`` line. Never fails.

    ``path`` and ``first_line`` say where the text begins, for problems and the lines of fields.
    """
    if "\r" in text:
        text = with_lf(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    return _parsed(text, path, first_line)


def _parsed(text: str, path: str, first_line: int) -> Template:
    """Like :func:`parse`, for a text with LF line ends."""
    if "\x0c" in text:
        text = text.replace("\n\x0c", "\n")
    before, names, raws = _cut(text)
    if not names:
        names, raws = ["Template-Type"], [""]
    line = first_line + before.count("\n") if before else first_line
    return _template(names, raws, path, line, _is_plain(text))


def parse_blob(blob: Blob) -> Iterator[Template]:
    """The templates of a blob in order, each as :func:`parse` returns it for the text that scan finds."""
    data = decode(blob.data, blob.encoding).data
    starts = template_starts(data.lower())
    starts.append(len(data))
    line, path = blob.first_line, blob.path
    done = 0
    for start, end in pairwise(starts):
        line += data.count(b"\n", done, start)
        # Decoded one by one: most templates are ASCII, and strings with one byte per character are the fast ones.
        yield _parsed(data[start:end].decode("utf-8"), path, line)
        done = start


def fobi_of(refipo: RawRefipo, path: str, line: int, handle: str) -> str | Problem:
    """The id of the fobi that a refipo refers to, or what is wrong with its URL.

    ``path``, ``line`` and ``handle`` are for the problem, whose message never shows user information of a URL.
    """
    of = f" of {handle}" if handle else ""
    if not refipo.url_raw:
        return Problem(shown(path), line, "empty-url", f"a File-URL{of} is empty")
    try:
        return normalise_url(refipo.url_raw)
    except BadName as error:
        return Problem(shown(path), line, "bad-url", f"a File-URL{of}: {error.message}")


def fobis(template: Template, path: str) -> Iterator[tuple[RawRefipo, str] | Problem]:
    """Each refipo with the id of the fobi that it refers to, or what is wrong with it. If there are more than archec
    follows, the last one is the problem that says so."""
    left = _MOST_REFIPOS
    lines: tuple[int, ...] = ()
    for number, raw in enumerate(template.refipos):
        left -= sum(map(len, raw))
        if left < 0:
            what = f"{template.id} mentions more files than archec follows; those from {number + 1} on are skipped"
            yield Problem(shown(path), template.line, "too-many-files", what)
            return
        fobi = fobi_of(raw, path, template.line, template.id)
        if isinstance(fobi, Problem):
            lines = lines or template.refipo_lines
            yield replace(fobi, line=lines[number])
        else:
            yield raw, fobi


def as_json(template: Template) -> dict[str, object]:
    """A template as ``archec redif --json`` prints it: plain dictionaries, lists, strings, numbers."""
    return {
        "kind": template.kind,
        "version": template.version,
        "handle": template.handle,
        "id": template.id,
        "title": template.title,
        "line": template.line,
        "fields": [field._asdict() for field in template.fields],
        "clusters": [_cluster_json(cluster) for cluster in template.clusters],
        "refipos": [
            {"url": refipo.url_raw} | {k: v for k, v in refipo._asdict().items() if v and k != "url_raw"}
            for refipo in template.refipos
        ],
        "problems": [problem.as_value() for problem in template.problems],
    }


def canonical_text(text: bytes) -> bytes:
    """The text whose checksum is the text checksum of a tobi: without trailing blanks, blank lines and comments.

    All lines end in LF, whatever the line ends of ``text``. Idempotent.
    """
    if text.endswith(b"\n") and text[:1] not in b"#\n" and not any(sign in text for sign in _UNTIDY):
        return text
    lines = [line.rstrip() for line in text.splitlines()]
    return b"".join([line + b"\n" for line in lines if line and line[0] != 35])  # 35 is #


def difference(before: bytes, after: bytes) -> Literal["cosmetic", "file-url", "changed"]:
    """The difference of two texts: none in the canonical text, only in values of File-URLs, or any other."""
    one, other = canonical_text(before), canonical_text(after)
    if one == other:
        return "cosmetic"
    return "file-url" if _without_urls(one) == _without_urls(other) else "changed"


def _without_urls(text: bytes) -> bytes:
    kept: list[bytes] = []
    inside = False
    for line in text.splitlines():
        match = _FILE_URL.match(line)
        if match is not None:
            kept.append(match[0].lower())
            inside = True
        elif not inside or _FIELD_LINE.match(line):
            kept.append(line)
            inside = False
    return b"\n".join(kept)


def _is_plain(text: str) -> bool:
    """Whether a text has no comments, conflict markers or Ctrl-Zs, which must be removed from values."""
    # Searching for a single rare character takes a fraction of the time of searching for a string.
    return (
        ("#" not in text or "\n#" not in text)
        and ("<" not in text or "\n<<<<<<<" not in text)
        and (">" not in text or "\n>>>>>>>" not in text)
        and ("=" not in text or "\n=======" not in text)
        and ("|" not in text or "\n|||||||" not in text)
        and "\x1a" not in text
    )


def _cut(text: str) -> tuple[str, list[str], list[str]]:
    """Cuts a text before each line that begins like a field, whether or not its name is known.

    Returns the text before the first such line, the names, and everything after the colon of each name.
    """
    pieces = _NEXT.split("\n" + text)
    return pieces[0], pieces[1::2], pieces[2::2]


def _specified(
    family: Family, names: list[str], raws: list[str], plain: bool
) -> tuple[list[Spec], list[str], list[str]]:
    """The fields of a template, from the names and pieces that :func:`_cut` returns, by columns: the spec, everything
    after the colon, and the value.

    A piece whose name is unknown to the template's type continues the previous field. ``plain`` promises that no line
    is a comment, a conflict marker or a Ctrl-Z.
    """
    # A full parse spends most of its time here: the usual template goes through map() column by column.
    specs: list[Spec | None] = list(map(usual_specs(family).get, names))
    if not all(specs) or family == "other":  # ten times as fast as None in specs
        specs = [spec or spec_of(family, name) for spec, name in zip(specs, names, strict=True)]
        if family == "other":
            specs = list(map(_unless_url, specs, raws))
        if not all(specs):
            specs, raws = _merged(specs, names, raws)
    values = list(map(str.strip, raws))
    if not plain:
        values = [_joined(raw) if "\n" in raw else value for raw, value in zip(raws, values, strict=True)]
    elif "\n" in "".join(values):
        values = [_joined_plain(value) if "\n" in value else value for value in values]
    return cast("list[Spec]", specs), raws, values


def _joined(raw: str) -> str:
    """The value in the text after a colon: its lines joined by blanks, without comments, blank lines and the markers
    of a merge conflict."""
    if "\n" not in raw:
        return raw.strip()
    lines = raw.split("\n")
    kept = [lines[0].strip()]
    kept += [line.strip() for line in lines[1:] if line[:1] != "#" and not line.startswith(_CONFLICT)]
    return " ".join([line for line in kept if line and line != "\x1a"])


def _grouped(specs: Sequence[Spec], values: Sequence[str]) -> tuple[tuple[Cluster, ...], list[int]]:
    """The clusters of a template in order, and the indexes of fields that come before the key of their cluster."""
    top: list[Cluster] = []
    keyless: list[int] = []
    rows_of: dict[str, list[Row]] = {}
    inner_of: dict[str, list[Cluster]] = {}
    for at, spec in enumerate(specs):
        prefix = spec[2]
        if not prefix:
            continue
        if not spec[3]:
            if prefix in rows_of:
                rows_of[prefix].append((spec[0], values[at]))
                continue
            keyless.append(at)
        # A cluster is made when it begins; its lists grow until this function returns, never later.
        rows_of[prefix] = rows = [(spec[0], values[at])]
        role, parent = spec[1], spec[4]
        if role == "person":
            inner: list[Cluster] = []
            inner_of[prefix] = inner
            top.append(Cluster(role, prefix, rows, inner))
            rows_of.pop(f"{prefix}-Workplace", None)
        elif parent:
            if parent not in inner_of:
                rows_of[parent], inner_of[parent] = [], []
                top.append(Cluster("person", parent, rows_of[parent], inner_of[parent]))
            inner_of[parent].append(Cluster(role, prefix, rows))
        else:
            top.append(Cluster(role, prefix, rows))
    return tuple(top), keyless


def _unless_url(spec: Spec | None, value: str) -> Spec | None:
    """``spec``, or None for ``https://`` at the beginning of a line, which would be a field in an unknown type."""
    return None if spec is not None and spec.role == "plain" and value[:2] == "//" and spec.name != "Handle" else spec


def _merged(specs: list[Spec | None], names: list[str], raws: list[str]) -> tuple[list[Spec | None], list[str]]:
    """The columns without unknown names; their pieces are appended to the values before them."""
    known: list[Spec | None] = []
    parts: list[list[str]] = []
    for spec, name, raw in zip(specs, names, raws, strict=True):
        if spec is not None:
            known.append(spec)
            parts.append([raw])
        elif parts:
            parts[-1].append(f"{name}:{raw}")
    return known, ["\n".join(part) for part in parts]


def _joined_plain(raw: str) -> str:
    """Like :func:`_joined`, for a text in which only blank lines must be removed."""
    return " ".join(filter(None, map(str.strip, raw.split("\n"))))


def _template(names: list[str], raws: list[str], path: str, first_line: int, plain: bool) -> Template:
    """A template from the names and pieces that ``_cut`` returns."""
    name, raw = names[0], raws[0]
    kind, version, family = _usual_kind(name, raw) if len(raw) < _USUAL else _kind(name, raw)
    specs, raws, values = _specified(family, names, raws, plain)
    canonical = list(map(_name, specs))
    clusters, keyless = _grouped(specs, values)
    handle, again = _handle(canonical, raws, values, plain)
    obi = id_of(handle) if handle else ""
    problems: tuple[Problem, ...] = ()
    if again or keyless or not obi or not plain:
        lines = _lines(raws, first_line)
        handles = [at for at, one in enumerate(canonical) if one == "Handle"]
        second = lines[handles[1]] if again else first_line
        found = _template_problems(shown(path), first_line, second, handle, obi)
        problems = (*found, *_field_problems(shown(path), lines, canonical, keyless, raws))
    return Template(kind, version, family, handle, obi, first_line, canonical, values, raws, clusters, problems)


def _kind(name: str, raw: str) -> Kind:
    """The type of a template, from its first field."""
    return kind_of(_joined(raw) if name.lower() == "template-type" else "")


_usual_kind = lru_cache(maxsize=256)(_kind)


def _lines(raws: Sequence[str], first_line: int) -> list[int]:
    """The line on which each field begins."""
    breaks = accumulate(map(str.count, raws, repeat("\n")), initial=first_line)
    return [line + at for at, line in zip(range(len(raws)), breaks)]  # noqa: B905 - breaks is longer by one


def _handle(canonical: list[str], raws: Sequence[str], values: Sequence[str], plain: bool) -> tuple[str, bool]:
    """The raw handle, and whether another one follows it."""
    at = -1
    times = canonical.count("Handle")
    for number in range(times):
        at = canonical.index("Handle", at + 1)
        handle, raw = values[at], raws[at]
        # Nearly always the value follows a single blank and ends on that line: then it is the handle.
        if not plain or ((raw[:1] != " " or not raw.startswith(handle, 1)) and "\n" in raw.rstrip()):
            first, *following = raw.split("\n")
            handle = handle_in(first, following)
        if handle:
            return handle, number + 1 < times
    return "", False


def _template_problems(path: str, line: int, second: int, handle: str, obi: str) -> Iterator[Problem]:
    """Problems of the handle; ``second`` is the line of a second handle, or that of the template."""
    if not obi and is_url(handle):
        message = f"{handle[:80]!r} is a URL, and no handle; the template is not stored"
        yield Problem(path, line, "bad-handle", message)
    elif not obi:
        yield Problem(path, line, "no-handle", "the template has no valid handle; it is not stored")
    if second != line:
        message = f"a second handle; the template in line {line} has {obi or handle[:80]!r} already"
        yield Problem(path, second, "two-handles", message)


def _field_problems(
    path: str, lines: Sequence[int], names: Sequence[str], keyless: Sequence[int], raws: Sequence[str]
) -> Iterator[Problem]:
    for at in keyless:
        message = f"{names[at]} stands before the field that opens its cluster"
        yield Problem(path, lines[at], "cluster-without-key", message)
    for raw, line in zip(raws, lines, strict=True):
        for more, text in enumerate(raw.split("\n") if "\n<<<<<<<" in raw else ()):
            if more and text.startswith("<<<<<<<"):
                yield Problem(path, line + more, "conflict-marker", "a conflict marker of a merge")


def _cluster_json(cluster: Cluster) -> dict[str, object]:
    return {
        "role": cluster.role,
        "prefix": cluster.prefix,
        "fields": [{"name": name, "value": value} for name, value in cluster.rows],
        "clusters": [_cluster_json(inner) for inner in cluster.clusters],
    }
