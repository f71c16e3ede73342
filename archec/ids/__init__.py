"""Ids of obis, their names on disk and their keys in an index: pure functions, idempotent where they normalise.

The id of a tobi is its normalised handle (``handles``), the id of a fobi its normalised URL (``urls``). ``names``
computes the name of an id in the obi store, ``urlkey`` its key in a CDXJ index; ``filesets`` has the ids of
filesets. Import from here.
"""

from __future__ import annotations

from archec.ids.filesets import FilesetId, is_fileset, parse_fileset
from archec.ids.handles import archive_of, item_of, normalise, normalise_handle, series_of, typed
from archec.ids.names import MAX_ID, MAX_NAME, escape, fan, file_name, unescape
from archec.ids.urlkey import handle_in, target_uri, urlkey
from archec.ids.urls import host_of, is_url, normalise_url, ranges_of, slash_variant, without_userinfo

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
    "series_of",
    "slash_variant",
    "target_uri",
    "typed",
    "unescape",
    "urlkey",
    "without_userinfo",
]
