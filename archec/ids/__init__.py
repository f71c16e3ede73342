"""Ids of obis, their names on disk and their keys in an index: pure functions, idempotent where they normalise.

``obis`` has the ids themselves and their names in the obi store, ``urlkey`` their keys in a CDXJ index. Import from
here.
"""

from __future__ import annotations

from archec.ids.obis import (
    MAX_ID,
    MAX_NAME,
    FilesetId,
    archive_of,
    escape,
    fan,
    file_name,
    host_of,
    is_fileset,
    is_url,
    item_of,
    normalise,
    normalise_handle,
    normalise_url,
    parse_fileset,
    ranges_of,
    remove_dot_segments,
    series_of,
    slash_variant,
    typed,
    unescape,
    without_userinfo,
)
from archec.ids.urlkey import handle_in, target_uri, urlkey

__all__ = [
    "MAX_ID",
    "MAX_NAME",
    "FilesetId",
    "archive_of",
    "escape",
    "fan",
    "file_name",
    "handle_in",
    "host_of",
    "is_fileset",
    "is_url",
    "item_of",
    "normalise",
    "normalise_handle",
    "normalise_url",
    "parse_fileset",
    "ranges_of",
    "remove_dot_segments",
    "series_of",
    "slash_variant",
    "target_uri",
    "typed",
    "unescape",
    "urlkey",
    "without_userinfo",
]
