"""Ids of obis and their names on disk: pure functions, all idempotent where they normalise.

* A tobi's id is its normalised handle, a fobi's id its normalised URL (``handles``, ``urls``; ``spelling`` is for
  what may be either).
* ``names``: the name of an id in the obi store.

Import from here.
"""

from __future__ import annotations

from archec.ids.handles import archive_of, item_of, normalise_handle, series_of
from archec.ids.limits import MAX_ID, MAX_NAME
from archec.ids.names import escape, fan, file_name, unescape
from archec.ids.spelling import normalise, typed
from archec.ids.urls import host_of, is_url, normalise_url, slash_variant, without_userinfo

__all__ = [
    "MAX_ID",
    "MAX_NAME",
    "archive_of",
    "escape",
    "fan",
    "file_name",
    "host_of",
    "is_url",
    "item_of",
    "normalise",
    "normalise_handle",
    "normalise_url",
    "series_of",
    "slash_variant",
    "typed",
    "unescape",
    "without_userinfo",
]
