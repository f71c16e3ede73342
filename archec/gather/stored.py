"""Stored: how many bytes all runs so far have written into the obi store, from their reports."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Run
from archec.errors import CatalogueError
from archec.tist import MAX_TIST

__all__ = ["newest_first", "stored_before"]

_PAGE = 50


def newest_first(catalogue: Catalogue, before: int = MAX_TIST + 1) -> Iterator[Run]:
    """The runs with tist < ``before``, newest first; page by page."""
    page = catalogue.newest_runs(before, _PAGE)
    while page:
        yield from page
        page = catalogue.newest_runs(page[-1].tist, _PAGE)


def stored_before(catalogue: Catalogue, run: int = MAX_TIST + 1) -> int:
    """Bytes that the runs before ``run`` wrote: the newest total that is known, and what came after it."""
    stored = 0
    for earlier in newest_first(catalogue, run):
        try:
            report = orjson.loads(earlier.report or "{}")
            totals = report.get("totals") or {}
            if totals:
                return stored + int(totals["stored_bytes"])
            stored += int(report.get("stored_bytes", 0))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CatalogueError(f"the report of run {earlier.tist} cannot be read: {error}") from error
    return stored
