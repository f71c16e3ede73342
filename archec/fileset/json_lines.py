"""Requests and results as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import Struct

from archec.catalogue.model import FilesetManifestFile
from archec.fileset.fields import clean
from archec.fileset.manifest import in_pieces
from archec.fileset.model import IngestRequest, IngestStrategy
from archec.fileset.redaction import public_value
from archec.fileset.status import BadRequest, Status

RESULT_VERSION = 1
LONGEST_LINE = 10_000_000
"""The most bytes of a request. Of a longer line, the rest need not be read."""


class FilesetFile(Struct, kw_only=True):
    """The data file of a ``*-file`` strategy."""

    file_meta: dict[str, Any] | None = None
    terminal: dict[str, Any] | None = None
    cdx: dict[str, Any] | None = None
    revisit_cdx: dict[str, Any] | None = None


class FilesetBundle(Struct, kw_only=True):
    """The enclosing file of a ``*-bundled`` strategy."""

    file_meta: dict[str, Any] | None = None
    cdx: dict[str, Any] | None = None
    revisit_cdx: dict[str, Any] | None = None
    terminal: dict[str, Any] | None = None
    archiveorg_bundle_path: str | None = None


class IngestResult(Struct, kw_only=True):
    """The result of one request. Every field is present, null if it does not apply.

    ``terminal``, ``file_meta`` and ``cdx`` describe the landing page. ``fileset`` is the id of the obi with its
    version, ``ingest_strategy`` the strategy that was used, ``ingest_strategy_preferred`` the one that the policy
    selected. ``due`` is the time from which another attempt is useful."""

    result_version: int = RESULT_VERSION
    hit: bool
    status: str
    message: str | None = None
    request: Any = None
    ingest_type: str | None = None
    terminal: dict[str, Any] | None = None
    file_meta: dict[str, Any] | None = None
    cdx: dict[str, Any] | None = None
    revisit_cdx: dict[str, Any] | None = None
    html_biblio: dict[str, Any] | None = None
    manifest: list[FilesetManifestFile] | None = None
    platform_name: str | None = None
    platform_domain: str | None = None
    platform_id: str | None = None
    platform_base_url: str | None = None
    ingest_strategy: str | None = None
    ingest_strategy_preferred: str | None = None
    archiveorg_item_name: str | None = None
    file_count: int | None = None
    total_size: int | None = None
    fileset_bundle: FilesetBundle | None = None
    fileset_file: FilesetFile | None = None
    fileset: str | None = None
    due: str | None = None


_STATUSES = [one.value for one in Status]
_STRATEGIES = [*(one.value for one in IngestStrategy), None]
_VALUES: Mapping[str, Mapping[str, Sequence[str | None]]] = {
    "IngestResult": {
        "status": _STATUSES, "ingest_strategy": _STRATEGIES, "ingest_strategy_preferred": _STRATEGIES
    },
    "FilesetManifestFile": {"status": [*_STATUSES, None]},
}  # fmt: skip
"""The values of the fields of results that have no others."""


def schema() -> dict[str, Any]:
    """The JSON Schema of a result."""
    (found,), components = msgspec.json.schema_components([IngestResult], ref_template="#/$defs/{name}")
    for name, component in components.items():
        component["description"] = cleandoc(component["description"])  # as Python 3.13 does, and older ones do not
        component["required"] = list(component["properties"])
        for field, value in _VALUES.get(name, {}).items():
            component["properties"][field]["enum"] = value
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "result of archec fileset ingest",
        **found,
        "$defs": components,
    }


def encode(result: IngestResult) -> Iterator[bytes]:
    """Yields a result as one line of JSON, in pieces, without a line end."""
    return in_pieces(result, result.__struct_fields__, msgspec.json.encode)


def request_of(line: str | bytes) -> IngestRequest:
    """Parses a line with a request: a JSON object with ``base_url``. Raises BadRequest."""
    if len(line) > LONGEST_LINE:
        raise BadRequest("the line is too long")
    try:
        given = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRequest(f"the line is not JSON: {str(error)[:200]}") from error
    if not isinstance(given, dict):
        raise BadRequest("the line is not a JSON object")
    return request(given)


def request(given: Mapping[str, Any]) -> IngestRequest:
    """Builds a request from a JSON object, which is kept in ``given``. Raises BadRequest for invalid fields."""
    url, kind, ids = given.get("base_url"), given.get("ingest_type", "dataset"), given.get("ext_ids")
    if not isinstance(url, str) or not url.strip() or len(url) > 8000:
        raise BadRequest("base_url: must be a URL, a DOI, a handle or the id of a fileset")
    if not isinstance(kind, str) or not kind or len(kind) > 100:
        raise BadRequest("ingest_type: must be text")
    if ids is not None and not isinstance(ids, dict):
        raise BadRequest("ext_ids: must be an object")
    try:
        public = public_value(dict(given))
    except RecursionError as error:
        raise BadRequest("nested too deeply") from error
    return IngestRequest(clean(url), clean(kind), ids or {}, public)
