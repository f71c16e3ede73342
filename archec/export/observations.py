"""The contents of a unit: the states and losses of its templates (or of filesets) and of all files that they mention,
in the order of the index.

States come from the catalogue. Visits that found a file unchanged are only in the journals. These are read once, and
the visits are sorted by URL into a scratch file with lines of equal length, which any number of processes can search.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import orjson
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from archec.archive.claims import last_seen
from archec.archive.evidence import Evidence, evidence_of
from archec.archive.journal_records import records_in
from archec.archive.warc_records import state, states
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import Obi, Position
from archec.errors import BadName, CorruptArchive, NotHeld, StorageFailed, storage_errors
from archec.export.units import FILESETS, Unit, tobis_of
from archec.ids import normalise_url
from archec.store.journal import read_batches
from archec.store.layout import Layout, journals
from archec.store.reader import open_obi
from archec.store.sorting import SortedLines
from archec.tist import iso
from archec.urlkey import target_uri
from archec.warc.cdxj import prefix
from archec.warc.records import LOSS, Observation

_MAX_HOPS = 64
_MAX_KNOWN = 1_000_000
"""Maximum number of redirect targets that are remembered so that they are not looked up again."""
_SAME = (b'"outcome":"same"', b'"outcome":"not-modified"')
_NO_TARGET = "0" * 16
_TLS = 32
_WIDTH = 16 + 12 + 1 + 16 + _TLS + 1
"""Length of a line: hash of the URL, tist, ``m`` (304) or ``s``, hash of the redirect target, TLS exceptions needed
(padded with blanks), line end."""


class Unchanged(NamedTuple):
    """A visit that found a file unchanged: its tist, whether the server answered 304, the hash of the redirect target
    or ``""``, and the TLS exceptions needed."""

    tist: int
    not_modified: bool
    target: str
    tls: str = ""


class Visits:
    """Looks up visits in a file of :func:`collect_visits`."""

    def __init__(self, path: Path) -> None:
        with storage_errors(path), open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""

    def of(self, url: str) -> Iterator[Unchanged]:
        """The visits to a URL, oldest first."""
        key = hash_of(url).encode()
        starts = range(0, len(self._map), _WIDTH)
        for start in starts[bisect_left(starts, key, key=lambda start: self._map[start : start + 16]) :]:
            line = self._map[start : start + _WIDTH]
            if not line.startswith(key):
                return
            target = line[29:45].decode()
            tls = line[45:-1].decode().rstrip()
            yield Unchanged(int(line[16:28]), line[28:29] == b"m", "" if target == _NO_TARGET else target, tls)


def collect_visits(
    layout: Layout,
    position: Position,
    since: int,
    folder: Path,
    reported: Callable[[int], None],
    *,
    retracted: Collection[int] = (),
) -> Path:
    """Writes the visits from ``since`` on that found files unchanged to a file in ``folder``, except visits of runs
    that are ``retracted``.

    Journals are read as far as the catalogue has followed them. ``reported`` receives the number of lines read so far.
    """
    path = folder / "visits"
    lines = 0
    with SortedLines(folder) as found:
        for journal in journals(layout):
            if journal.tist in retracted or not since <= journal.tist <= position.run:
                continue
            for batch in read_batches(journal.path):
                if (journal.tist, batch.n) > (position.run, position.batch):
                    break
                for record in records_in(batch, journal.path, ObiChange, obis="fobi", words=_SAME):
                    _add(found, record)
                lines += len(batch.lines)
                reported(lines)
        with storage_errors(path), open(path, "wb") as file:
            file.writelines(line + b"\n" for line in found)
    return path


def collect(
    catalogue: Catalogue,
    layout: Layout,
    unit: Unit,
    visits: Visits | None,
    since: int,
    folder: Path,
    into: SortedLines,
) -> None:
    """Adds all observations of a unit from ``since`` on to ``into``, as lines. ``layout`` is the obi store's.

    A file belongs to every series with a template that mentions it or ever mentioned it, and so does everything that
    its URL redirects to.
    """
    evidence = cache(partial(evidence_of, catalogue))
    known: set[int] = set()

    def observe(urls: SortedLines) -> SortedLines:
        """Adds the observations of these URLs. Returns their redirect targets that are not in ``known``."""
        targets = SortedLines(folder)
        for fobi in catalogue.each("fobi", (url.decode("utf-8", "surrogatepass") for url in urls)):
            for seen in (*of_fobi(fobi, visits, since), *losses(fobi, since, evidence)):
                into.add(line_of(seen))
            for target in (note.target.encode("utf-8", "surrogatepass") for note in fobi.notes.values()):
                key = xxh3_64_intdigest(target)
                if target and key not in known:
                    if len(known) < _MAX_KNOWN:
                        known.add(key)
                    targets.add(target)
        return targets

    with SortedLines(folder) as mentioned:
        for obi in catalogue.all("fileset") if unit == FILESETS else tobis_of(catalogue, unit):
            noted = (seen for seen in states(obi) if seen.tist >= since)
            for seen in (*noted, *losses(obi, since, evidence)):
                into.add(line_of(seen))
            mentions = (refipo.url for version in obi.versions.values() for refipo in version.refs)
            for url in _files_of(layout, obi) if unit == FILESETS else mentions:
                mentioned.add(url.encode("utf-8", "surrogatepass"))
        for ingest in catalogue.ingests() if unit == FILESETS else ():
            for url in filter(None, (ingest.landing, *ingest.answers)):
                mentioned.add(url.encode("utf-8", "surrogatepass"))
        targets = observe(mentioned)
    for _ in range(_MAX_HOPS):
        with targets as urls:
            targets = observe(urls)
        if targets.empty:
            break
    targets.close()


class _File(msgspec.Struct):
    platform_url: str | None = None


class _Files(msgspec.Struct):
    """The part of a manifest with the URLs of its files."""

    bundle: _File | None = None
    manifest: list[_File] = []


def _files_of(layout: Layout, fileset: Obi) -> Iterator[str]:
    """The files of all states of a fileset. Unreadable states are reported when they are exported themselves."""
    for tist in fileset.history.noted:
        with suppress(NotHeld, CorruptArchive, StorageFailed, msgspec.MsgspecError):
            with open_obi(layout, fileset.bytes_at(tist), fileset.id) as stream:
                found = msgspec.json.decode(stream.read(), type=_Files)
            for file in (found.bundle, *found.manifest):
                if file is not None and file.platform_url:
                    with suppress(BadName):  # such a file cannot be held
                        yield normalise_url(file.platform_url)


def of_fobi(fobi: Obi, visits: Visits | None, since: int) -> Iterator[Observation]:
    """The noted states of a file from ``since`` on, and the visits that found it unchanged.

    A state to which such a visit refers is included even if it is older than ``since``.
    """
    referred: set[int] = set()
    for visit in visits.of(fobi.id) if visits is not None else ():
        entry = fobi.history.entry_at(visit.tist)
        if visit.tist < since or entry is None or entry[1] is None or entry[0] == visit.tist:
            continue
        noted = state(fobi, entry[0], entry[1])
        if _same_way(noted, visit):
            referred.add(noted.tist)
            by_server = visit.not_modified and noted.kind != "redirect"
            yield noted._replace(kind="revisit", tist=visit.tist, unchanged=by_server, headers=(), tls=visit.tls)
    for tist, sha256 in fobi.history:
        if sha256 is not None and (tist >= since or tist in referred):
            yield state(fobi, tist, sha256)


def losses(obi: Obi, since: int, evidence: Callable[[], Evidence]) -> Iterator[Observation]:
    """The losses of a template or a file from ``since`` on, each with the time when it was last seen before."""
    for tist, sha256 in obi.history:
        if sha256 is None and tist >= since:
            seen = last_seen(obi, evidence(), tist) or 0
            reason = obi.notes[tist].reason if tist in obi.notes else ""
            fields = (("last-seen", iso(seen)), ("lost", iso(tist)), ("reason", reason))
            noted = max(when for when in obi.history.noted if when < tist)
            yield Observation("metadata", obi.id, tist, noted, "", 0, "", headers=fields)


def line_of(seen: Observation) -> bytes:
    """An observation as a line that sorts like its index line."""
    uri = LOSS + target_uri(seen.id) if seen.kind == "metadata" else target_uri(seen.id)
    return prefix(uri, seen.tist) + b"\t" + orjson.dumps(tuple(seen))


def observation_of(line: bytes) -> tuple[bytes, Observation]:
    """The prefix of the index line, and the observation, in a line from :func:`line_of`."""
    start, _, rest = line.partition(b"\t")
    value = orjson.loads(rest)
    value[8] = tuple((name, text) for name, text in value[8])
    return start, Observation(*value)


def hash_of(url: str) -> str:
    """The 16 hex digits that identify a URL in the file of visits."""
    return xxh3_64_hexdigest(url.encode("utf-8", "surrogatepass"))


def _add(found: SortedLines, record: ObiChange) -> None:
    visit = record.visit if not record.put else None
    if visit is not None and visit.outcome in ("same", "not-modified"):
        flag = "m" if visit.outcome == "not-modified" else "s"
        target = hash_of(visit.target) if visit.target else _NO_TARGET
        tls = f"{visit.tls:{_TLS}.{_TLS}}"
        found.add(f"{hash_of(record.id)}{visit.tist:012d}{flag}{target}{tls}".encode("ascii", "replace"))


def _same_way(noted: Observation, visit: Unchanged) -> bool:
    """Whether the visit reached the bytes by the same redirect as when they were noted, or both without one."""
    return visit.target == (hash_of(noted.target) if noted.target else "")
