"""Captures: what a result says of a landing page, a data file or a bundle that is held."""

from __future__ import annotations

from typing import Any, NamedTuple

from archec.archive.observing import index_fields, state
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import FilesetManifestFile
from archec.ids import normalise_url, target_uri, urlkey
from archec.tist import MAX_TIST
from archec.warc.cdxj import timestamp
from archec.warc.records import Observation


class Capture(NamedTuple):
    """``cdx`` is the row of the access layer for the state that is held; ``revisit_cdx`` that of the visit of this run
    which found it unchanged, if it is an earlier one."""

    terminal: dict[str, Any]
    file_meta: dict[str, Any]
    cdx: dict[str, Any] | None = None
    revisit_cdx: dict[str, Any] | None = None


def capture_of(catalogue: Catalogue, file: FilesetManifestFile, run: int, status: int = 200) -> Capture:
    """What is said of a file, of which all is known; ``status`` is that of the answer."""
    url = file.platform_url or ""
    cdx, revisit = _rows(catalogue, url, file.sha256, run)
    return Capture(
        {
            "terminal_url": file.terminal_url or url, "terminal_dt": file.terminal_dt, "terminal_status_code": status,
            "terminal_sha1hex": file.sha1,
        },
        {
            "size_bytes": file.size, "md5hex": file.md5, "sha1hex": file.sha1, "sha256hex": file.sha256,
            "mimetype": file.mimetype,
        },
        cdx,
        revisit,
    )  # fmt: skip


def _rows(
    catalogue: Catalogue, url: str, sha256: str | None, run: int
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    obi = normalise_url(url)
    fobi = catalogue.obis("fobi", [obi]).get(obi)
    for tist, there in reversed(list(fobi.history)) if fobi is not None else ():
        if there is None or there != sha256 or fobi is None:
            continue
        seen, visit = state(fobi, tist, there), fobi.visit
        again = visit is not None and visit.tist == run > tist and fobi.history.at(MAX_TIST) == sha256
        return _row(seen), _row(seen._replace(kind="revisit", tist=run)) if again else None
    return None, None


def _row(seen: Observation) -> dict[str, Any]:
    return {"urlkey": urlkey(target_uri(seen.id)), "timestamp": timestamp(seen.tist), **index_fields(seen)}
