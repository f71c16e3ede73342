"""``redif``: the raw template and its whole history, or the history of a file; archec's own format (``redif.xsd``).

It contains what Dublin Core cannot express: when each content was noted, changed and lost, its checksum and size, the
files it refers to, and its place in the data set. A template with characters that XML does not allow is base64-encoded,
so that its md5 can always be checked.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from archec.catalogue.model import Obi
from archec.history import Incidence
from archec.oai.formats import Context, RecordFormat
from archec.oai.items import Item
from archec.oai.xml import XSI, attributes, is_clean, text
from archec.tist import iso

NAMESPACE = "urn:archec:redif:1"


class Redif(RecordFormat):
    schema = "redif.xsd"
    namespace = NAMESPACE

    def metadata(self, item: Item, context: Context) -> str:
        location = f"{NAMESPACE} {self.schema_url(context)}"
        head = {"xmlns": NAMESPACE, "xmlns:xsi": XSI, "xsi:schemaLocation": location}
        obi = item.obi
        history = f"<history>{''.join([_entry(obi, one) for one in obi.history.incidences()])}</history>"
        if obi.kind == "fobi":
            return f"<fobi{attributes({**head, 'url': obi.id})}>{history}</fobi>"
        head |= {"id": obi.id, "handle": obi.handle or obi.id}
        return f"<tobi{attributes(head)}>{_template(item) if item.readable else ''}{history}</tobi>"


def _template(item: Item) -> str:
    newest = item.obi.newest
    facts = {"tist": str(item.noted)}
    facts |= {"md5": newest.md5, "sha256": newest.sha256} if newest is not None else {"md5": "", "sha256": ""}
    if not is_clean(item.text) or "\r" in item.text:
        body = base64.b64encode(item.text.encode("utf-8", "surrogatepass")).decode("ascii")
        return f"<template{attributes({**facts, 'encoding': 'base64'})}>{body}</template>"
    return f'<template{attributes(facts)} xml:space="preserve">{text(item.text)}</template>'


def _entry(obi: Obi, incidence: Incidence) -> str:
    version, note = obi.versions.get(incidence.state or ""), obi.notes.get(incidence.tist)
    claim = obi.claim_at(incidence.tist) if incidence.state is not None else None
    facts = {"tist": str(incidence.tist), "time": iso(incidence.tist), "kind": incidence.kind}
    facts["sha256"] = incidence.state or ""
    files = ""
    if version is not None:
        facts |= {"md5": version.md5, "size": str(version.size), "text": version.text or "", "type": version.type}
        files = "".join([f"<file{_known(ref._asdict())}/>" for ref in version.refs])
    if note is not None:
        facts |= {"how": note.kind, "run": str(note.run), "target": note.target, "status": str(note.status or "")}
        facts |= {"suspect": note.suspect, "reason": note.reason}
    if claim is not None:
        facts |= {"path": claim.place, "line": str(claim.line or ""), "encoding": claim.encoding}
    return f"<entry{_known(facts)}>{files}</entry>"


def _known(facts: Mapping[str, str]) -> str:
    """The attributes with a value."""
    return attributes({name: value for name, value in facts.items() if value})
