"""A template, parsed: its type, its fields, its clusters, its refipos."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import NamedTuple

from archec.redif.clusters import Cluster, ClusterBuilder, RawRefipo
from archec.redif.fields import Field, joined, specified
from archec.redif.handle import handle_in, id_of
from archec.redif.kinds import Family, kind_of
from archec.redif.problems import Problem, shown

__all__ = ["Template", "as_json", "parse"]

_TITLES = ("Title", "Name", "Name-Full", "Primary-Name")
_MARKED = frozenset((*_TITLES, "Handle"))
_NAME = itemgetter(0)
_FIELD = partial(tuple.__new__, Field)  # what a NamedTuple's own constructor calls, in half the time


class Template(NamedTuple):
    """A parsed template.

    ``kind`` is the canonical type (``ReDIF-Paper``), or what is written there for an unknown one,
    whose ``family`` is ``other``; ``handle`` the handle as it is written and ``id`` its normalised
    form; ``title`` the Title, Name or Name-Full. ``fields`` are all fields in order, those of the
    clusters too; ``clusters`` the persons, organisations and files, nested. Lines are the file's.
    """

    kind: str
    version: str
    family: Family
    handle: str
    id: str
    title: str
    line: int
    fields: tuple[Field, ...]
    clusters: tuple[Cluster, ...]
    refipos: tuple[RawRefipo, ...]
    problems: tuple[Problem, ...]

    def get(self, name: str) -> str:
        """The first value of a field (canonical name) that is not empty, else ``""``."""
        for field in self.fields:
            if field.name == name and field.value:
                return field.value
        return ""

    def all(self, name: str) -> tuple[str, ...]:
        """Every value of a field (canonical name) that is not empty."""
        return tuple(field.value for field in self.fields if field.name == name and field.value)

    def clusters_of(self, prefix: str) -> tuple[Cluster, ...]:
        """The clusters with this prefix, ``Author`` or ``File``, in order."""
        return tuple(cluster for cluster in self.clusters if cluster.prefix == prefix)


def parse(text: str, *, path: str = "", first_line: int = 1) -> Template:
    """The template in ``text``, which begins with its ``Template-Type:`` line; never fails.

    ``path`` and ``first_line`` say where it was found, for problems and the lines of fields.
    """
    if "\r" in text:
        text = text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")
    kind, specs, values, lines = specified(text.rstrip(), first_line)
    tidy = [joined(value) if "\n" in value else value.strip() for value in values]
    fields = list(map(_FIELD, zip(map(_NAME, specs), tidy, lines, strict=True)))
    builder = ClusterBuilder()
    add = builder.add
    handles: list[str] = []
    titles: dict[str, str] = {}
    for at, spec in enumerate(specs):
        if spec[2]:
            add(spec, fields[at])
        if spec[0] in _MARKED and (value := tidy[at]):
            if spec[0] != "Handle":
                titles.setdefault(spec[0], value)
            elif "\n" in values[at]:
                first, *following = values[at].split("\n")
                handles.append(handle_in(first, following))
            else:
                handles.append(handle_in(value, ()))
    clusters = builder.clusters()
    handle = next((handle for handle in handles if handle), "")
    obi = id_of(handle)
    problems: list[Problem] = []
    if not obi or len(handles) > 1 or builder.keyless or "\n<<<<<<<" in text:
        problems = _problems(shown(path), first_line, text, obi, handles, builder.keyless)
    return Template(
        kind.name,
        kind.version,
        kind.family,
        handle,
        obi,
        next((titles[name] for name in _TITLES if name in titles), ""),
        first_line,
        tuple(fields),
        clusters,
        tuple([cluster.refipo() for cluster in clusters if cluster.role == "file"]),
        tuple(problems),
    )


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


def _cluster_json(cluster: Cluster) -> dict[str, object]:
    return {
        "role": cluster.role,
        "prefix": cluster.prefix,
        "line": cluster.line,
        "fields": [field._asdict() for field in cluster.fields],
        "clusters": [_cluster_json(inner) for inner in cluster.clusters],
    }


def _problems(
    path: str, first_line: int, text: str, obi: str, handles: list[str], keyless: list[Field]
) -> list[Problem]:
    problems = [
        Problem(path, field.line, "cluster-without-key", f"{field.name} stands before the field that opens its cluster")
        for field in keyless
    ]
    if not obi:
        problems.append(Problem(path, first_line, "no-handle", "the template has no handle and is not stored"))
    if len(handles) > 1:
        problems.append(Problem(path, first_line, "two-handles", f"more than one handle; {obi} is the first"))
    for number, line in enumerate(text.split("\n") if "\n<<<<<<<" in text else ()):
        if line.startswith(("<<<<<<<", ">>>>>>>")):
            problems.append(Problem(path, first_line + number, "conflict-marker", "a conflict marker of a merge"))
    return problems
