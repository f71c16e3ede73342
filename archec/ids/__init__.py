"""Ids of obis, their names on disk and their keys in an index: pure functions, idempotent where they normalise.

``obis`` has the ids themselves and their names in the obi store, ``urlkey`` their keys in a CDXJ index. Import from
here.
"""

from archec.ids.obis import MAX_ID as MAX_ID
from archec.ids.obis import MAX_NAME as MAX_NAME
from archec.ids.obis import FilesetId as FilesetId
from archec.ids.obis import archive_of as archive_of
from archec.ids.obis import escape as escape
from archec.ids.obis import fan as fan
from archec.ids.obis import file_name as file_name
from archec.ids.obis import host_of as host_of
from archec.ids.obis import is_fileset as is_fileset
from archec.ids.obis import is_url as is_url
from archec.ids.obis import item_of as item_of
from archec.ids.obis import normalise as normalise
from archec.ids.obis import normalise_handle as normalise_handle
from archec.ids.obis import normalise_url as normalise_url
from archec.ids.obis import parse_fileset as parse_fileset
from archec.ids.obis import ranges_of as ranges_of
from archec.ids.obis import remove_dot_segments as remove_dot_segments
from archec.ids.obis import series_of as series_of
from archec.ids.obis import slash_variant as slash_variant
from archec.ids.obis import typed as typed
from archec.ids.obis import unescape as unescape
from archec.ids.obis import without_userinfo as without_userinfo
from archec.ids.urlkey import handle_in as handle_in
from archec.ids.urlkey import target_uri as target_uri
from archec.ids.urlkey import urlkey as urlkey
