"""What pages for people say for programs: their title, their meta and link elements, and their JSON-LD."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from lxml import etree, html

from archec.fileset import fields
from archec.fileset.fields import Field
from archec.fileset.status import PlatformError

_LONGEST = 100_000
"""Characters of a meta element's content."""
_MOST = 50
"""JSON-LD scripts of a page."""


def _tree(body: bytes) -> html.HtmlElement | None:
    try:
        return html.document_fromstring(body, parser=html.HTMLParser(encoding="utf-8", recover=True))
    except (etree.LxmlError, ValueError):
        return None


def meta_of(body: bytes) -> Iterator[tuple[str, str]]:
    """Name and content of a page's meta elements."""
    tree = _tree(body)
    for element in tree.iter("meta") if tree is not None else ():
        name, content = element.get("name"), element.get("content")
        if name and content and len(content) < _LONGEST:
            yield fields.clean(name), fields.clean(content.strip())


def title_of(body: bytes) -> str:
    """The title of a page, empty if it has none."""
    tree = _tree(body) if body.strip() else None
    found = tree.find(".//title") if tree is not None else None
    return fields.clean(" ".join(found.text_content().split())[:1000]) if found is not None else ""


def json_ld_of(body: bytes) -> Iterator[Field]:
    """The JSON-LD objects of a page, those in lists and graphs one by one."""
    tree = _tree(body) if body.strip() else None
    elements = tree.iter("script") if tree is not None else ()
    scripts = (script for script in elements if script.get("type") == "application/ld+json")
    for number, script in enumerate(islice(scripts, _MOST)):
        try:
            found = fields.parse((script.text or "").encode("utf-8", "replace"), f"script[{number}]")
        except PlatformError:
            continue
        yield from objects_of(found)


def objects_of(found: Field) -> Iterator[Field]:
    """The objects of a JSON-LD document, those in lists and graphs one by one."""
    for one in found.one_or_more():
        if one.is_object:
            yield one
            if one["@graph"].is_list:
                yield from (node for node in one["@graph"].items() if node.is_object)


def link_elements_of(body: bytes) -> Iterator[dict[str, str]]:
    """The attributes of a page's link elements, as far as they have a relation and a URL."""
    tree = _tree(body) if body.strip() else None
    for element in tree.iter("link") if tree is not None else ():
        found = {name: fields.clean(element.get(name) or "") for name in ("rel", "href", "type", "profile")}
        if found["rel"] and found["href"] and len(found["href"]) < _LONGEST:
            yield found
