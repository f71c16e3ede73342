"""Memento (RFC 7089): TimeGates, mementos and TimeMaps of a collection.

All three represent a resource by the rows of its URL in ascending order. The URI of a memento (URI-M) is always that of
its raw replay: ``COLL/STAMPid_/URL``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from anyio import to_thread
from msgspec.structs import replace
from starlette.responses import Response

from archec.access.collection import Lookup
from archec.access.exchange import HTML, JSON, answer, as_uri, errors_of
from archec.access.ordering import MAX_SAME, spelled_first
from archec.access.query import Query, all_of
from archec.access.rows import Row
from archec.access.sources import Errors, Loss
from archec.access.stamps import http_date, iso_date, seconds

LINK_FORMAT = "application/link-format"
_TYPES = {"link": LINK_FORMAT, "json": JSON, "cdxj": "text/x-cdxj"}
_PAGE = 10_000
"""Maximum number of mementos on a page of a TimeMap."""
_END_OF_TIME = "99991231235959"


@dataclass(frozen=True, slots=True)
class Addresses:
    """The URIs for an original ``url`` under a collection's ``base`` (without a trailing slash)."""

    base: str
    url: str

    @property
    def timegate(self) -> str:
        """URI-G."""
        return f"{self.base}/{as_uri(self.url)}"

    def timemap(self, form: str = "link", page: int = 0) -> str:
        """URI-T."""
        number = f"{page}/" if page else ""
        return f"{self.base}/timemap/{form}/{number}{as_uri(self.url)}"

    def links(self, url: str = "") -> list[str]:
        """The start of every ``Link`` header: original (``url``, if given), TimeGate and TimeMap."""
        return [
            f'<{as_uri(url or self.url)}>; rel="original"',
            f'<{self.timegate}>; rel="timegate"',
            f'<{self.timemap()}>; rel="timemap"; type="{LINK_FORMAT}"',
        ]

    def memento(self, row: Row) -> str:
        """URI-M. If the row has no URL, that of the request is used."""
        return f"{self.base}/{row.timestamp}id_/{as_uri(row.url or self.url)}"


class View(NamedTuple):
    """A memento and its neighbours. ``before`` and ``after`` are None if there are none."""

    chosen: Row
    first: Row
    last: Row
    before: Row | None
    after: Row | None


async def view(lookup: Lookup, url: str, stamp: str) -> View | None:
    """Returns the memento nearest to a time (the newest without one) with its neighbours, or None if there are no
    mementos."""
    remote = [source for step in lookup.collection.steps for source in step.remote]
    if remote:  # one query, so that other servers are queried once
        if lookup.viewer.rules.are_trivial and all(source.type != "memento" for source in remote):
            return await _among_nearest(lookup, url, stamp)
        return await to_thread.run_sync(_around, await lookup.rows(all_of(url)), url, stamp)
    lookup = await lookup.in_step_of(all_of(url))
    chosen = await nearest(lookup, url, stamp)
    if chosen is None:
        return None
    first = await lookup.first(all_of(url)) or chosen
    last = await lookup.first(all_of(url, reverse=True)) or chosen
    just_before = chosen.timestamp[:-1] + chr(ord(chosen.timestamp[-1]) - 1) + "~"  # and above all lesser timestamps
    earlier = replace(all_of(url, reverse=True), until=just_before)
    later = replace(all_of(url), since=chosen.timestamp + "!")
    before = await lookup.first(earlier)
    after = await lookup.first(later)
    return View(chosen, first, last, before, after)


async def _among_nearest(lookup: Lookup, url: str, stamp: str) -> View | None:
    """As :func:`view`, from as many captures as other servers send at most. Only if there are more, they are also asked
    for the first and the last; and for all if the memento's neighbour on one side is not among the nearest."""
    asked = _nearest_first(lookup, url, stamp or _END_OF_TIME)  # others may refuse the reverse order
    rows = await to_thread.run_sync(_ascending, await lookup.rows(asked))
    around = _around(iter(rows), url, stamp)
    if around is None or len(rows) < MAX_SAME:
        return around
    from_first, from_last = (replace(all_of(url, end), may_push_limit=True) for end in ("", _END_OF_TIME))
    first = await lookup.first(from_first) or around.first
    last = (await lookup.first(from_last) if stamp else None) or around.last
    at = around.chosen.timestamp
    if (around.before is None and first.timestamp < at) or (around.after is None and at < last.timestamp):
        return await to_thread.run_sync(_around, await lookup.rows(all_of(url)), url, stamp)
    return around._replace(first=first, last=last)


def _ascending(rows: Iterator[Row]) -> list[Row]:
    return sorted(rows, key=attrgetter("line"))


def _around(found: Iterator[Row], url: str, stamp: str) -> View | None:
    """As :func:`view`, from ascending rows: those of all captures, or of the nearest."""
    around: View | None = None
    wanted, least = seconds(stamp) if stamp else 0.0, 0.0
    for timestamp, of_one_time in groupby(found, attrgetter("timestamp")):
        rows = list(of_one_time)
        distance = abs(seconds(timestamp) - wanted)
        if around is None or not stamp or distance < least:
            first, before = (around.first, around.last) if around is not None else (rows[0], None)
            chosen = next((row for row in rows if row.url == url), rows[0] if stamp else rows[-1])
            around, least = View(chosen, first, rows[-1], before, None), distance
        else:
            around = around._replace(last=rows[-1], after=around.after or rows[0])
    return around


def links(at: Addresses, around: View) -> str:
    """The ``Link`` header of TimeGates and mementos: original, timegate, timemap, and the neighbouring mementos."""
    chosen = around.chosen
    found = at.links(chosen.url)
    rels: dict[str, tuple[Row, list[str]]] = {}
    wanted = [("first", around.first), ("prev", around.before), ("memento", chosen), ("next", around.after)]
    for rel, row in [*wanted, ("last", around.last)]:
        if row is not None:
            rels.setdefault(at.memento(row), (row, []))[1].append(rel)
    for uri, (row, names) in sorted(rels.items(), key=lambda item: item[1][0].timestamp):
        rel = " ".join([*(name for name in names if name != "memento"), "memento"])
        found.append(f'<{uri}>; rel="{rel}"; datetime="{http_date(row.timestamp)}"')
    return ", ".join(found)


def timegate(at: Addresses, around: View, lost: Loss | None, errors: Errors) -> Response:
    """The redirect of a TimeGate."""
    link = links(at, around)
    if lost is not None:
        link += f', <{as_uri(around.chosen.url)}>; rel="archec.lost"; seen="{lost["seen"]}"; from="{lost["from"]}"'
    location = at.memento(around.chosen)
    headers = [("Location", location), ("Vary", "accept-datetime"), ("Link", link), *errors_of(errors)]
    return answer(302, b"", HTML, headers)


def no_memento(lookup: Lookup) -> Response:
    """The response if there is no memento. Raises Refused if the client may not learn that."""
    lookup.viewer.check_empty()
    text = "<!DOCTYPE html>\n<title>Not found</title>\n<p>The archive has no capture of this.</p>\n"
    return answer(404, text, HTML, errors_of(lookup.errors))


# -- TimeMaps ---------------------------------------------------------------------------------------


async def timemap(lookup: Lookup, at: Addresses, form: str, page: int) -> Response:
    """Returns a page of a TimeMap. Raises Refused for an unknown format."""
    if form not in _TYPES:
        raise lookup.viewer.refusal(400, f"output={form[:40]} not supported")
    rows = await lookup.rows(all_of(at.url))
    wanted = await to_thread.run_sync(_page_of, _mementos(rows), page)
    if not wanted.rows:
        lookup.viewer.check_empty()
        body = {"link": "", "json": "{}\n", "cdxj": ""}[form]
        return answer(404, body, _TYPES[form], errors_of(lookup.errors))
    if form == "json":
        text = await to_thread.run_sync(lambda: _as_json(at, wanted, lookup.lost(at.url)))
    else:
        text = await to_thread.run_sync(_as_link if form == "link" else _as_cdxj, at, wanted)
    headers = [("Link", ", ".join(at.links(wanted.rows[0].url)[:2])), *errors_of(lookup.errors)]
    return answer(200, text.encode("utf-8", "surrogatepass"), _TYPES[form], headers)


@dataclass(frozen=True, slots=True)
class _Page:
    """The rows of a page, its number (from 1; 0 if it is the only page), the first and last timestamp of every page,
    and the first and last row of all."""

    rows: list[Row]
    number: int
    spans: list[tuple[str, str]]
    ends: tuple[Row, ...]

    @property
    def rels(self) -> list[str]:
        """What each row is: ``memento``, or also the ``first`` or ``last`` of all."""
        found = ["memento"] * len(self.rows)
        if self.number in (0, len(self.spans)):
            found[-1] = "last memento"
        if self.number in (0, 1):
            found[0] = f"first {found[0]}"
        return found

    def pages(self, at: Addresses, form: str) -> dict[str, object]:
        """The addresses and times of all pages, if there are several."""
        found = [
            {"uri": at.timemap(form, number), "from": begin, "until": end}
            for number, (begin, end) in enumerate(self.spans, 1)
        ]
        return {"pages": found} if self.number else {}


def _mementos(rows: Iterator[Row]) -> Iterator[Row]:
    """Yields one row for each URI-M: sources may have rows of the same URL and time."""
    for _, of_one_time in groupby(rows, attrgetter("timestamp")):
        by_url: dict[str, Row] = {}
        for row in of_one_time:
            by_url.setdefault(row.url, row)
        yield from by_url.values()


def _page_of(rows: Iterator[Row], number: int) -> _Page:
    kept: list[Row] = []
    spans: list[tuple[str, str]] = []
    ends: tuple[Row, ...] = ()
    wanted = max(number, 1)
    for count, row in enumerate(rows):
        page = count // _PAGE + 1
        if page > len(spans):
            spans.append((row.timestamp, row.timestamp))
        spans[-1] = (spans[-1][0], row.timestamp)
        if page == wanted:
            kept.append(row)
        ends = (ends[0] if ends else row), row
    return _Page(kept, wanted if len(spans) > 1 else 0, spans, ends)


def _as_link(at: Addresses, page: _Page) -> str:
    first, last = http_date(page.rows[0].timestamp), http_date(page.rows[-1].timestamp)
    original, timegate, _ = at.links(page.rows[0].url)
    own = f'<{at.timemap("link", page.number)}>; rel="self"; type="{LINK_FORMAT}"; from="{first}"; until="{last}"'
    lines = [original, own, timegate]
    for number, (begin, end) in enumerate(page.spans, 1):
        if page.number and number != page.number:
            span = f'from="{http_date(begin)}"; until="{http_date(end)}"'
            lines.append(f'<{at.timemap("link", number)}>; rel="timemap"; type="{LINK_FORMAT}"; {span}')
    for rel, row in zip(page.rels, page.rows, strict=True):
        when = http_date(row.timestamp)
        lines.append(f'<{at.memento(row)}>; rel="{rel}"; datetime="{when}"; collection="{row.origin.coll}"')
    return ",\n".join(lines) + "\n"


def _as_json(at: Addresses, page: _Page, lost: Loss | None) -> str:
    first, *mementos, last = [
        {"datetime": iso_date(row.timestamp), "uri": at.memento(row), "collection": row.origin.coll}
        for row in (page.ends[0], *page.rows, page.ends[-1])
    ]
    value: dict[str, object] = {
        "original_uri": page.rows[0].url or at.url,
        "self": at.timemap("json", page.number),
        "timegate_uri": at.timegate,
        "timemap_uri": {"link_format": at.timemap("link"), "json_format": at.timemap("json")},
        "mementos": {"first": first, "last": last, "list": mementos},
        **page.pages(at, "json"),
    }
    if lost is not None:
        value["archec.lost"] = lost
    return json.dumps(value) + "\n"


def _as_cdxj(at: Addresses, page: _Page) -> str:
    lines = [
        '!context ["http://tools.ietf.org/html/rfc7089"]',
        f"!id {json.dumps({'uri': at.timemap('cdxj', page.number)})}",
        '!keys ["memento_datetime_YYYYMMDDhhmmss"]',
        f"!meta {json.dumps({'original_uri': page.rows[0].url or at.url, 'timegate_uri': at.timegate})}",
        *(f"!meta {json.dumps({name: value})}" for name, value in page.pages(at, "cdxj").items()),
    ]
    for rel, row in zip(page.rels, page.rows, strict=True):
        value = {"uri": at.memento(row), "rel": rel, "datetime": http_date(row.timestamp)}
        lines.append(f"{row.timestamp} {json.dumps(value)}")
    return "\n".join(lines) + "\n"


async def nearest(lookup: Lookup, url: str, stamp: str) -> Row | None:
    """Returns the capture nearest to a time, or the newest without one; of several at one time, that of this URL."""
    return next(spelled_first(await lookup.rows(_nearest_first(lookup, url, stamp)), url), None)


def _nearest_first(lookup: Lookup, url: str, stamp: str) -> Query:
    """The query for the captures nearest to a time, or the newest without one. Other servers need not send all."""
    query = all_of(url, stamp, reverse=not stamp)
    return replace(query, limit=MAX_SAME, may_push_limit=lookup.viewer.rules.are_trivial)


async def available(lookup: Lookup, at: Addresses, stamp: str, given: str) -> Response:
    """``/wayback/available``: the nearest capture in the format of the Internet Archive's API. ``given`` is the time as
    the client wrote it."""
    row = await nearest(lookup, at.url, stamp)
    closest = {}
    if row is None:
        lookup.viewer.check_empty()
    else:
        found = {"status": row.text("status") or "200", "available": lookup.viewer.has_content(row)}
        closest = {"closest": {**found, "url": at.memento(row), "timestamp": row.timestamp[:14]}}
    value = {"url": at.url, "archived_snapshots": closest, **({"timestamp": given} if given else {})}
    return answer(200, json.dumps(value) + "\n", JSON, errors_of(lookup.errors))
