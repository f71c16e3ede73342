"""A template, parsed: its type, its fields, its clusters, its refipos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

from archec.redif.clusters import Cluster, RawRefipo, grouped, raw_refipo
from archec.redif.encoding import decode_text
from archec.redif.fields import Field, Row, cut, joined, specified
from archec.redif.handle import handle_in, id_of
from archec.redif.items import Blob
from archec.redif.kinds import Family, kind_of
from archec.redif.lines import with_lf
from archec.redif.problems import Problem, shown

__all__ = ["Template", "as_json", "parse", "parse_blob"]

_TITLES: Mapping[Family, tuple[str, ...]] = {
    "work": ("Title",),
    "series": ("Name", "Title"),
    "archive": ("Name",),
    "person": ("Name-Full", "Name"),
    "institution": ("Primary-Name", "Name"),
    "other": ("Title", "Name", "Name-Full"),
}
"""Where a template's title is, by family; the first that has a value."""


class Template(NamedTuple):
    """A parsed template.

    ``kind`` is the canonical type (``ReDIF-Paper``), or what is written there for an unknown one,
    whose ``family`` is ``other``; ``handle`` the handle as it is written and ``id`` its normalised
    form; ``title`` the Title, Name or Name-Full. ``rows`` are all fields in order as plain pairs of
    canonical name and value, ``raws`` what stands after their colons; ``clusters`` the persons,
    organisations and files, nested. ``line`` is the file's.
    """

    kind: str
    version: str
    family: Family
    handle: str
    id: str
    title: str
    line: int
    rows: tuple[Row, ...]
    raws: Sequence[str]
    clusters: tuple[Cluster, ...]
    refipos: tuple[RawRefipo, ...]
    problems: tuple[Problem, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields in order, those of the clusters too, with the file's lines."""
        lines = _lines(self.raws, self.line)
        return tuple(Field(name, value, line) for (name, value), line in zip(self.rows, lines, strict=True))

    def get(self, name: str) -> str:
        """The first value of a field (canonical name) that is not empty, else ``""``."""
        return next((value for one, value in self.rows if one == name and value), "")

    def all(self, name: str) -> tuple[str, ...]:
        """Every value of a field (canonical name) that is not empty."""
        return tuple(value for one, value in self.rows if one == name and value)

    def clusters_of(self, prefix: str) -> tuple[Cluster, ...]:
        """The clusters with this prefix, ``Author`` or ``File``, in order."""
        return tuple(cluster for cluster in self.clusters if cluster.prefix == prefix)


def parse(text: str, *, path: str = "", first_line: int = 1) -> Template:
    """The template in ``text``, which begins with its ``Template-Type:`` line; never fails.

    ``path`` and ``first_line`` say where it was found, for problems and the lines of fields.
    """
    if "\r" in text:
        text = with_lf(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    before, names, values = cut(text)
    if not names:
        names, values = ["Template-Type"], [""]
    return _template(names, values, path, first_line + before.count("\n"), "\n<<<<<<<" in text)


def parse_blob(blob: Blob) -> list[Template]:
    """Every template of a blob, in order: what :func:`parse` makes of each of those that scan finds."""
    text = decode_text(blob.data, blob.encoding)
    before, names, values = cut(text)
    conflict = "\n<<<<<<<" in text
    starts = [at for at, name in enumerate(names) if len(name) == 13 and name.lower() == "template-type"]
    line = blob.first_line + before.count("\n")
    starts.append(len(names))
    line += "".join(values[: starts[0]]).count("\n") + starts[0]
    templates: list[Template] = []
    for start, end in pairwise(starts):
        part = values[start:end]
        templates.append(_template(names[start:end], part, blob.path, line, conflict))
        line += "".join(part).count("\n") + end - start
    return templates


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
        "problems": [
            {"path": problem.path, "line": problem.line, "code": problem.code, "message": problem.message}
            for problem in template.problems
        ],
    }


def _template(names: list[str], values: list[str], path: str, first_line: int, conflict: bool) -> Template:
    """A template from its part of what ``cut`` gives; ``conflict``: look for conflict markers."""
    kind = kind_of(joined(values[0]) if names[0].lower() == "template-type" else "")
    specs, raws, tidy = specified(kind[2], names, values)
    canonical = [spec[0] for spec in specs]
    rows = tuple(zip(canonical, tidy))  # noqa: B905 - as long as each other
    clusters, keyless = grouped(specs, rows)
    handle, again = _handle(canonical, raws, tidy)
    obi = id_of(handle) if handle else ""
    refipos = tuple([raw_refipo(cluster[1], cluster[2]) for cluster in clusters if cluster[0] == "file"])
    problems: tuple[Problem, ...] = ()
    if again or keyless or not obi or conflict:
        lines = _lines(raws, first_line)
        problems = tuple(_problems(shown(path), first_line, obi, again, [*map(rows.index, keyless)], rows, raws, lines))
    title = _title(kind[2], canonical, tidy)
    return Template(
        kind[0], kind[1], kind[2], handle, obi, title, first_line, rows, raws, clusters, refipos, problems
    )


def _lines(raws: Sequence[str], first_line: int) -> list[int]:
    """The line on which each field begins."""
    breaks = accumulate(map(str.count, raws, repeat("\n")), initial=first_line)
    return [line + at for at, line in zip(range(len(raws)), breaks)]  # noqa: B905 - one more of these


def _handle(canonical: list[str], raws: Sequence[str], values: Sequence[str]) -> tuple[str, bool]:
    """The raw handle, and whether there is another after it."""
    at = -1
    for _ in range(canonical.count("Handle")):
        at = canonical.index("Handle", at + 1)
        handle = values[at]
        if "\n" in raws[at].rstrip() or "\x1a" in handle:
            first, *following = raws[at].split("\n")
            handle = handle_in(first, following)
        if handle:
            return handle, "Handle" in canonical[at + 1 :]
    return "", False


def _title(family: Family, canonical: list[str], values: Sequence[str]) -> str:
    for name in _TITLES[family]:
        at = -1
        for _ in range(canonical.count(name)):
            at = canonical.index(name, at + 1)
            if values[at]:
                return values[at]
    return ""


def _problems(
    path: str,
    first_line: int,
    obi: str,
    again: bool,
    keyless: list[int],
    rows: Sequence[Row],
    raws: Sequence[str],
    lines: Sequence[int],
) -> Iterator[Problem]:
    for at in keyless:
        message = f"{rows[at][0]} stands before the field that opens its cluster"
        yield Problem(path, lines[at], "cluster-without-key", message)
    if not obi:
        yield Problem(path, first_line, "no-handle", "the template has no handle and is not stored")
    if again:
        yield Problem(path, first_line, "two-handles", f"more than one handle; {obi} is the first")
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
