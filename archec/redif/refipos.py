"""The refipos of a template, with normalised URLs, without parsing the rest of it."""

from __future__ import annotations

from typing import NamedTuple

from archec.errors import BadName
from archec.ids import normalise_url
from archec.redif.clusters import RawRefipo, raw_refipo
from archec.redif.fields import Row, Spec, cut, joined, spec_of, unless_url
from archec.redif.kinds import kind_of
from archec.redif.problems import Problem, shown

__all__ = ["Refipo", "Refipos", "checked", "refipos_of"]


class Refipo(NamedTuple):
    """A reference to file information: ``url`` is the id of the fobi, the rest is as the template has it."""

    url: str
    format: str = ""
    function: str = ""
    size: str = ""
    restriction: str = ""


class Refipos(NamedTuple):
    """A template's refipos in order, and the File-URLs that are none."""

    refipos: tuple[Refipo, ...]
    problems: tuple[Problem, ...]


_NOTHING = Refipos((), ())


def refipos_of(text: bytes, *, path: str = "", first_line: int = 1, handle: str = "") -> Refipos:
    """The refipos of a tobi file, the same and in the same order as those of the parsed template.

    ``path``, ``first_line`` and ``handle`` go into the problems (``bad-url``, ``empty-url``); no
    message shows user information of a URL.
    """
    if b"file-url" not in text.lower():
        return _NOTHING
    before, names, raws = cut(text.decode("utf-8", "replace"))
    if not names:
        return _NOTHING
    line = first_line + before.count("\n")
    found: list[Refipo] = []
    problems: list[Problem] = []
    for prefix, rows, at in _file_clusters(names, raws, line):
        refipo = checked(raw_refipo(prefix, rows), path, at, handle)
        if isinstance(refipo, Problem):
            problems.append(refipo)
        else:
            found.append(refipo)
    return Refipos(tuple(found), tuple(problems))


def checked(raw: RawRefipo, path: str, line: int, handle: str) -> Refipo | Problem:
    """The refipo with its URL normalised, or what is wrong with that URL."""
    of = f" of {handle}" if handle else ""
    if not raw.url_raw:
        return Problem(shown(path), line, "empty-url", f"a File-URL{of} is empty")
    try:
        return Refipo(normalise_url(raw.url_raw), *raw[1:])
    except BadName as error:
        return Problem(shown(path), line, "bad-url", f"a File-URL{of}: {error.message}")


def _file_clusters(names: list[str], raws: list[str], line: int) -> list[tuple[str, list[Row], int]]:
    """The file clusters among a template's pieces: prefix, fields, line."""
    family = kind_of(joined(raws[0]) if names[0].lower() == "template-type" else "").family
    found: list[tuple[str, list[Row], int]] = []
    open_rows: dict[str, list[Row]] = {}
    pending: tuple[Spec, list[str], int] | None = None
    for name, raw in zip([*names, "Handle"], [*raws, ""], strict=True):
        spec = unless_url(spec_of(family, name), raw) if family == "other" else spec_of(family, name)
        if spec is None:
            if pending is not None:
                pending[1].append(f"{name}:{raw}")
        else:
            if pending is not None:
                _close(pending, open_rows, found)
            pending = (spec, [raw], line) if spec.role == "file" else None
        line += raw.count("\n") + 1
    return found


def _close(
    pending: tuple[Spec, list[str], int], open_rows: dict[str, list[Row]], found: list[tuple[str, list[Row], int]]
) -> None:
    spec, parts, line = pending
    row = (spec.name, joined("\n".join(parts)))
    if not spec.key and spec.prefix in open_rows:
        open_rows[spec.prefix].append(row)
    else:
        open_rows[spec.prefix] = [row]
        found.append((spec.prefix, open_rows[spec.prefix], line))
