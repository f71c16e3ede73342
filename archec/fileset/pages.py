"""Metadata in HTML pages: the title, meta and link elements, and JSON-LD."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from lxml import etree, html

from archec.fileset import fields
from archec.fileset.fields import JsonValue
from archec.fileset.status import PlatformError
from archec.text.sniff import BOMS, bare_type, declared_charset

_PREFIX = re.compile("(?:schema|sdo|sc):|https?://schema\\.org/")
_LONGEST = 100_000
"""Characters of an attribute. Elements with a longer one are ignored."""
_MOST = 50
"""JSON-LD scripts that are read of a page."""


class Page:
    """A parsed page: UTF-8, or else in the charset that its Content-Type or its ``meta`` elements state, or else UTF-8
    with damaged bytes. A page that cannot be parsed has no metadata."""

    def __init__(self, body: bytes, content_type: str = "") -> None:
        self._tree: html.HtmlElement | None = None
        try:
            body.decode()
        except UnicodeDecodeError:
            marked = next((name for mark, name in BOMS if body.startswith(mark)), "")
            body = body.decode(marked or declared_charset(content_type, body) or "utf-8", "replace").encode()
        with suppress(etree.LxmlError, ValueError):
            self._tree = html.document_fromstring(body, parser=html.HTMLParser(encoding="utf-8", recover=True))

    def meta(self) -> Iterator[tuple[str, str]]:
        """Yields the name and content of each meta element that has both."""
        for found in self._attributes("meta", "name", "content"):
            if found["name"] and found["content"]:
                yield found["name"], found["content"].strip()

    def links(self) -> Iterator[dict[str, str]]:
        """Yields the attributes of each link element that has a relation and a URL."""
        for found in self._attributes("link", "rel", "href", "type", "profile"):
            if found["rel"] and found["href"]:
                yield found

    def base(self) -> str:
        """The URL against which those of the page are resolved; empty if it is that of the page."""
        return next((found["href"].strip() for found in self._attributes("base", "href") if found["href"]), "")

    def location(self) -> str:
        """The URL of the first ``location`` element, unless its weight is 0; empty if there is none."""
        found = self._attributes("location", "href", "weight")
        return next((one["href"].strip() for one in found if one["href"] and one["weight"] != "0"), "")

    def title(self) -> str:
        """The title; empty if there is none."""
        found = self._tree.find(".//title") if self._tree is not None else None
        return fields.clean(" ".join(found.text_content().split())[:1000]) if found is not None else ""

    def json_ld(self) -> Iterator[JsonValue]:
        """Yields the JSON-LD objects of the page, including those in lists and graphs. Invalid scripts are ignored."""
        elements = self._tree.iter("script") if self._tree is not None else ()
        scripts = (script for script in elements if bare_type(script.get("type", "")) == "application/ld+json")
        for number, script in enumerate(islice(scripts, _MOST)):
            with suppress(PlatformError):
                yield from objects_of(_unwrapped(script.text or "").encode("utf-8", "replace"), f"script[{number}]")

    def _attributes(self, tag: str, *names: str) -> Iterator[dict[str, str]]:
        """Yields the named attributes of each element with this tag; missing ones are empty."""
        for element in self._tree.iter(tag) if self._tree is not None else ():
            found = {name: element.get(name) or "" for name in names}
            if max(map(len, found.values())) < _LONGEST:
                yield {name: fields.clean(value) for name, value in found.items()}


def objects_of(document: bytes, name: str = "") -> Iterator[JsonValue]:
    """Yields the objects of a JSON-LD document, including those in lists and graphs, and what a page is about. Terms of
    schema.org have no prefix. ``name`` is the path of the document in messages. Raises PlatformError."""
    levels = [fields.parse(document, name, _without_prefixes).one_or_more()]
    while levels:
        one = next(levels[-1], None)
        if one is None:
            levels.pop()
        elif one.is_object:
            yield one
            levels += [one[inner].one_or_more() for inner in ("mainEntity", "@graph")]


def _unwrapped(script: str) -> str:
    """A script without what hides it from old browsers or from XML: a comment of HTML or CDATA, itself often in one."""
    script = script.strip()
    for mark in ("//", "/*", "<![CDATA[", "<!--", "*/"):
        script = script.removeprefix(mark).lstrip()
    for mark in ("*/", "]]>", "-->", "/*", "//"):
        script = script.removesuffix(mark).rstrip()
    return script


def _without_prefixes(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_PREFIX.sub("", name): value for name, value in members}
