"""Observations: what is to be in a unit's files, one line each, in the order of the index.

A line begins as the index line of the observation will: key, time, URI. So the sorted observations can be
merged with the index that is there, and what is new is written in the index's order.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from functools import lru_cache
from typing import NamedTuple

import orjson

from archec.catalogue.model import Fobi, Tobi
from archec.export.visits import Unchanged, Visits, hash_of
from archec.ids import target_uri, urlkey

__all__ = ["Kind", "Observation", "line_of", "observation_of", "of_fobi", "of_tobi", "prefix", "timestamp"]


class Kind:
    """The kinds of records: a template or an ftp file; an answer with its body; a redirect; a repetition."""

    RESOURCE = "resource"
    RESPONSE = "response"
    REDIRECT = "redirect"
    REVISIT = "revisit"


class Observation(NamedTuple):
    """One observation of an obi.

    ``noted`` is the tist under which its bytes lie (for a revisit the earlier one), ``md5`` and ``size`` those
    of the bytes (size -1: not known), ``type`` their media type, ``status``, ``headers`` and ``target`` what the
    server said; ``unchanged`` whether a revisit goes by what the server said (304) and not by the bytes.
    """

    kind: str
    id: str
    tist: int
    noted: int
    md5: str
    size: int
    type: str
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    target: str = ""
    unchanged: bool = False


@lru_cache(maxsize=4096)
def timestamp(tist: int) -> str:
    """A tist as the 14 digits of an index."""
    return datetime.fromtimestamp(tist, tz=timezone.utc).strftime("%Y%m%d%H%M%S").rjust(14, "0")


def prefix(uri: str, tist: int) -> bytes:
    """What the index line of an observation begins with; no other observation's line does."""
    return f'{urlkey(uri)} {timestamp(tist)} {{"url":"{uri}"'.encode()


def line_of(seen: Observation) -> bytes:
    """An observation as a line that sorts as its index line will."""
    return prefix(target_uri(seen.id), seen.tist) + b"\t" + orjson.dumps(tuple(seen))


def observation_of(line: bytes) -> tuple[bytes, Observation]:
    """The prefix and the observation of a line."""
    start, _, rest = line.partition(b"\t")
    value = orjson.loads(rest)
    value[8] = tuple((name, text) for name, text in value[8])
    return start, Observation(*value)


def of_tobi(tobi: Tobi, since: int) -> Iterator[Observation]:
    """Every state of a template from ``since`` on."""
    for tist, md5 in tobi.history:
        if md5 is not None and tist >= since:
            version = tobi.versions.get(md5)
            size = version.size if version is not None else 0
            yield Observation(Kind.RESOURCE, tobi.id, tist, tist, md5, size, "text/plain")


def of_fobi(fobi: Fobi, visits: Visits | None, since: int) -> Iterator[Observation]:
    """Every noted state of a file from ``since`` on, and every visit that found it unchanged.

    The state that such a visit refers to is given even if it is older than ``since``, so that no revisit
    stands alone.
    """
    referred: set[int] = set()
    for visit in visits.of(fobi.id) if visits is not None else ():
        entry = fobi.history.entry_at(visit.tist)
        if visit.tist < since or entry is None or entry[1] is None or entry[0] == visit.tist:
            continue
        noted = _noted(fobi, entry[0], entry[1])
        if _same_way(noted, visit):
            referred.add(noted.tist)
            by_server = visit.not_modified and noted.kind != Kind.REDIRECT
            yield noted._replace(kind=Kind.REVISIT, tist=visit.tist, unchanged=by_server, headers=())
    for tist, md5 in fobi.history:
        if md5 is not None and (tist >= since or tist in referred):
            yield _noted(fobi, tist, md5)


def _noted(fobi: Fobi, tist: int, md5: str) -> Observation:
    version = fobi.versions.get(md5)
    note = fobi.notes.get(tist)
    size, kind = (version.size, version.type) if version is not None else (-1, "")
    if note is None:
        return Observation(_kind(fobi.id, ""), fobi.id, tist, tist, md5, size, kind)
    return Observation(
        _kind(fobi.id, note.target), fobi.id, tist, tist, md5, size, kind, note.status, note.headers, note.target
    )


def _kind(url: str, target: str) -> str:
    if target:
        return Kind.REDIRECT
    return Kind.RESOURCE if url.startswith("ftp:") else Kind.RESPONSE


def _same_way(noted: Observation, visit: Unchanged) -> bool:
    """Whether the visit came to the bytes by the same redirect, or by none, as when they were noted."""
    return visit.target == (hash_of(noted.target) if noted.target else "")
