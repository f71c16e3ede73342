"""``redif``: the raw template and its whole history, or a file's; archec's own format (``redif.xsd``).

What Dublin Core cannot say: when each content was noted, changed and lost, its checksum and size, the
files it pointed to, where in the data set it stood. A template that holds characters which XML cannot
carry stands there in base64, so that its md5 can always be checked.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

from archec.catalogue.model import Fobi, Tobi
from archec.oai.formats.base import XSI, Context, FobiItem, Item, RecordFormat, TobiItem
from archec.oai.xml import attributes, is_clean, text
from archec.tist import iso

__all__ = ["NAMESPACE", "Redif"]

NAMESPACE = "urn:archec:redif:1"


class Redif(RecordFormat):
    """``redif`` for tobis and fobis."""

    schema = "redif.xsd"
    namespace = NAMESPACE

    def metadata(self, item: Item, context: Context) -> str:
        """The ``tobi`` or the ``fobi`` element."""
        place = {"xmlns": NAMESPACE, "xmlns:xsi": XSI}
        place["xsi:schemaLocation"] = f"{NAMESPACE} {self.schema_url(context)}"
        if isinstance(item, TobiItem):
            return _tobi(item, place)
        return _fobi(item, place)


def _tobi(item: TobiItem, place: dict[str, str]) -> str:
    tobi = item.tobi
    head = attributes({**place, "id": tobi.id, "handle": tobi.handle or tobi.id})
    return f"<tobi{head}>{_template(item)}<history>{''.join(_tobi_entries(tobi))}</history></tobi>"


def _template(item: TobiItem) -> str:
    if not item.readable:
        return ""
    facts = {"tist": str(item.tist), "md5": item.md5}
    if not is_clean(item.text) or "\r" in item.text:
        body = base64.b64encode(item.text.encode("utf-8", "surrogatepass")).decode("ascii")
        return f"<template{attributes({**facts, 'encoding': 'base64'})}>{body}</template>"
    return f'<template{attributes(facts)} xml:space="preserve">{text(item.text)}</template>'


def _tobi_entries(tobi: Tobi) -> Iterator[str]:
    for incidence in tobi.history.incidences():
        note, version = tobi.notes.get(incidence.tist), tobi.versions.get(incidence.md5 or "")
        facts = {"tist": str(incidence.tist), "time": iso(incidence.tist), "kind": incidence.kind}
        if incidence.md5 is not None:
            facts["md5"] = incidence.md5
        if version is not None:
            facts |= {"size": str(version.size), "text": version.text, "type": version.kind}
        if note is not None:
            facts |= {"how": note.kind, "run": str(note.run)}
            facts |= _filled({"path": note.path, "encoding": note.encoding, "reason": note.reason})
            if note.line:
                facts["line"] = str(note.line)
        files = [
            f"<file{attributes(_filled({name: str(value) for name, value in ref._asdict().items()}))}/>"
            for ref in (version.refs if version is not None else ())
        ]
        yield f"<entry{attributes(facts)}>{''.join(files)}</entry>"


def _fobi(item: FobiItem, place: dict[str, str]) -> str:
    fobi = item.fobi
    return f"<fobi{attributes({**place, 'url': fobi.id})}><history>{''.join(_fobi_entries(fobi))}</history></fobi>"


def _fobi_entries(fobi: Fobi) -> Iterator[str]:
    for incidence in fobi.history.incidences():
        note, version = fobi.notes.get(incidence.tist), fobi.versions.get(incidence.md5 or "")
        facts = {"tist": str(incidence.tist), "time": iso(incidence.tist), "kind": incidence.kind}
        if incidence.md5 is not None:
            facts["md5"] = incidence.md5
        if version is not None:
            facts |= {"size": str(version.size), **_filled({"text": version.text or "", "type": version.type})}
        if note is not None:
            facts |= {"how": note.kind, "run": str(note.run)}
            facts |= _filled({"target": note.target, "suspect": note.suspect, "reason": note.reason})
            if note.status:
                facts["status"] = str(note.status)
        yield f"<entry{attributes(facts)}/>"


def _filled(facts: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in facts.items() if value}
