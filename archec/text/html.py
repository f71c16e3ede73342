"""The visible text of an HTML page: what a reader sees, not what the server changes at each visit.

Dropped are scripts, styles, comments, templates and attributes, so hidden inputs and their one-time
tokens; LOCKSS's hash filters cut the same kinds of things. What a style sheet may hide stays: a
script may show it, and a change that goes unnoticed is worse than one too many.
No tree is built, so that depth and size cost little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lxml import etree

from archec.text.normalise import TextDigest
from archec.text.result import NoText

__all__ = ["digest_html"]

_INVISIBLE = frozenset({"script", "style", "template"})
_INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins",
    "kbd", "label", "mark", "nobr", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time",
    "tt", "u", "var", "wbr",
})
_DROP = dict.fromkeys([*range(9), 11, *range(14, 28), 0x7F])
"""Controls that stand for nothing in a page and that the parser stops at."""


class _Visible:
    """Parser target: feeds the digest with the text outside of invisible elements."""

    def __init__(self, digest: TextDigest) -> None:
        self._digest = digest
        self._depth = 0
        """How many elements deep we are inside an invisible one; 0 outside."""

    def start(self, tag: str | bytes, attrib: Mapping[Any, Any]) -> None:
        if tag not in _INLINE:
            self._digest.cut()
        if self._depth:
            self._depth += 1
        elif tag in _INVISIBLE:
            self._depth = 1

    def end(self, tag: str | bytes) -> None:
        if self._depth:
            self._depth -= 1
        if tag not in _INLINE:
            self._digest.cut()

    def data(self, data: str | bytes) -> None:
        if not self._depth and isinstance(data, str):
            self._digest.feed(data)

    def comment(self, text: str | bytes) -> None:
        """Not visible."""

    def pi(self, target: str, text: str | None = None) -> None:
        """Not visible."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        """Not visible."""

    def close(self) -> None:
        """Nothing to build."""


def digest_html(text: Iterable[str], digest: TextDigest) -> None:
    """Feeds the visible text of a page, which comes in pieces, to ``digest``; NoText ``damaged``."""
    parser = etree.HTMLParser(target=_Visible(digest), encoding="utf-8", huge_tree=True, recover=True)
    fed = False
    try:
        for piece in text:
            clean = piece.translate(_DROP)
            if clean:
                parser.feed(clean.encode("utf-8", "replace"))
                fed = True
        if fed:
            parser.close()
    except etree.LxmlError as error:
        raise NoText("damaged") from error

