"""Bytes to characters, piece by piece: byte-order mark, what is declared, what HTML says, UTF-8, cp1252."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from itertools import chain

__all__ = ["charset_of", "decoded", "meta_charset"]

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_PARAMETER = re.compile(r";\s*charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I)
_META = re.compile(rb"<meta\s[^>]{0,300}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I)
_META_SPACE = 4096
_KNOWN = re.compile(
    r"utf-?8|utf-?16(-?[lb]e)?|iso-?8859-?\d{1,2}|latin-?1|(us-)?ascii|(windows-|cp)12\d\d|koi8-[ru]|macintosh"
    r"|mac-?roman|gb2312|gbk|gb18030|big5(-?hkscs)?|euc-(jp|kr)|shift[_-]jis|sjis|iso-2022-jp|tis-620|cp(437|850|866)"
)
_AS_CP1252 = re.compile(r"iso-?8859-?1|latin-?1|(us-)?ascii|(windows-|cp)1252")
"""Read as cp1252, as browsers do (WHATWG Encoding Standard, names and labels)."""


def charset_of(media_type: str) -> str:
    """The charset parameter of a Content-Type, ``""`` without one."""
    match = _PARAMETER.search(media_type[:500])
    return match[1].lower() if match else ""


def meta_charset(head: bytes) -> str:
    """What a ``<meta charset>`` in the first bytes of an HTML page says, ``""`` without one."""
    match = _META.search(head, 0, _META_SPACE)
    name = match[1].decode("ascii", "replace").lower() if match else ""
    return "utf-8" if name.startswith(("utf-16", "utf16")) else name


def decoded(source: Callable[[], Iterator[bytes]], declared: str, page: bool) -> Iterator[Iterator[str]]:
    """The readings of a body to try in turn; one that raises UnicodeDecodeError is to be given up.

    ``source`` opens the body anew. A byte-order mark rules, then ``declared`` (an HTTP charset),
    then, in a ``page``, its own meta; a charset that is named is read with replacement. Without one:
    UTF-8 if all of it is valid, else cp1252, which reads anything.
    """
    stream = source()
    first = next(stream, b"")
    for mark, name in _BOMS:
        if first.startswith(mark):
            yield _read(chain((first[len(mark) :],), stream), name, "replace")
            return
    named = next(filter(None, (_python_name(name) for name in (declared, meta_charset(first) if page else ""))), "")
    if named == "cp1252":
        yield _cp1252(chain((first,), stream))
        return
    if named:
        yield _read(chain((first,), stream), named, "strict" if named == "utf-8" else "replace")
        if named != "utf-8":
            return
    else:
        yield _read(chain((first,), stream), "utf-8", "strict")
    yield _cp1252(source())


def _python_name(charset: str) -> str:
    """The codec for a charset name; ``""`` for names that are none, or none of text."""
    name = charset.strip().lower()
    if not _KNOWN.fullmatch(name):
        return ""
    if _AS_CP1252.fullmatch(name):
        return "cp1252"
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return ""
    return "utf-16-le" if found == "utf-16" else found


def _read(stream: Iterator[bytes], name: str, errors: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(name)(errors)
    for piece in stream:
        yield decoder.decode(piece)
    yield decoder.decode(b"", True)


def _cp1252(stream: Iterator[bytes]) -> Iterator[str]:
    """cp1252 that never fails: the five bytes it leaves undefined become C1 controls."""
    table = "".join(bytes((byte,)).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
    for piece in stream:
        yield codecs.charmap_decode(piece, "strict", table)[0]
