"""The charset that a server or a page declares."""

from __future__ import annotations

import re

from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding

_CHARSET = re.compile(
    r"utf-8|utf-16(-[bl]e)?|iso8859-\d+|iso2022_\w+|cp\d+|koi8-\w|mac-\w+|gb18030|big5\w*|euc_\w+|shift_jis\w*|tis-620"
)
"""Python's names of the codecs that are charsets; others, such as ``rot13``, are not."""


def declared(content_type: str, head: bytes) -> str:
    """The codec of the charset that the server, or else the head of the page, declares; ``""`` if there is none. Names
    are interpreted as browsers do (latin-1 is cp1252)."""
    by_server = http_content_type_encoding(content_type.replace("'", '"')) or ""  # some send charset='utf-8'
    if _CHARSET.fullmatch(by_server):
        return "utf-16-le" if by_server == "utf-16" else by_server
    by_page = html_body_declared_encoding(head) or ""
    if by_page.startswith("utf-16"):
        return "utf-8"  # the declaration was found as ASCII, so the page is not UTF-16
    return by_page if _CHARSET.fullmatch(by_page) else ""
