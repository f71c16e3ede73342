"""``redif``: the raw template and its whole history, or a file's; archec's own format (``redif.xsd``).

What Dublin Core cannot say: when each content was noted, changed and lost, its checksum and size, the files it
pointed to, where in the data set it stood. A template with characters that XML cannot hold is given in base64, so
that its md5 can always be checked.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from archec.oai.formats import Context, RecordFormat
from archec.oai.items import Item, Occurrence
from archec.oai.xml import XSI, attributes, is_clean, text
from archec.tist import iso

NAMESPACE = "urn:archec:redif:1"


class Redif(RecordFormat):
    """``redif`` for tobis and fobis."""

    schema = "redif.xsd"
    namespace = NAMESPACE

    def metadata(self, item: Item, context: Context) -> str:
        location = f"{NAMESPACE} {self.schema_url(context)}"
        head = {"xmlns": NAMESPACE, "xmlns:xsi": XSI, "xsi:schemaLocation": location}
        history = f"<history>{''.join([_entry(one) for one in item.history])}</history>"
        if item.kind == "fobi":
            return f"<fobi{attributes({**head, 'url': item.id})}>{history}</fobi>"
        head |= {"id": item.id, "handle": item.handle}
        return f"<tobi{attributes(head)}>{_template(item) if item.readable else ''}{history}</tobi>"


def _template(item: Item) -> str:
    newest = item.newest
    facts = {"tist": str(newest.tist), "md5": newest.md5 or "", "sha256": newest.sha256 or ""}
    if not is_clean(item.text) or "\r" in item.text:
        body = base64.b64encode(item.text.encode("utf-8", "surrogatepass")).decode("ascii")
        return f"<template{attributes({**facts, 'encoding': 'base64'})}>{body}</template>"
    return f'<template{attributes(facts)} xml:space="preserve">{text(item.text)}</template>'


def _entry(one: Occurrence) -> str:
    facts = {
        "tist": str(one.tist), "time": iso(one.tist), "kind": one.kind, "md5": one.md5,
        "sha256": one.sha256,
        "size": None if one.size is None else str(one.size), "text": one.text, "type": one.type,
        "how": one.how, "run": str(one.run or ""), "path": one.path, "line": str(one.line or ""),
        "encoding": one.encoding, "target": one.target, "status": str(one.status or ""), "suspect": one.suspect,
        "reason": one.reason,
    }  # fmt: skip
    files = [f"<file{_known(ref._asdict())}/>" for ref in one.files]
    return f"<entry{_known(facts)}>{''.join(files)}</entry>"


def _known(facts: Mapping[str, str | None]) -> str:
    """Those attributes that have a value."""
    return attributes({name: value for name, value in facts.items() if value})
