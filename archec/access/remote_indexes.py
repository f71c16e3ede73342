"""Remote indexes as sources: CDX servers, Memento archives, and the live web."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from anyio import to_thread

from archec.access.errors import SourceFailed
from archec.access.ordering import MAX_SORTED, row_key, source_rows
from archec.access.query import Filter, Query, joined, key_of, uri_of
from archec.access.remote import Cache, Fetched, UrlTemplate, Web, errors_reported_in, escaped, fetch
from archec.access.rows import Row, RowOrigin, any_row, made_row
from archec.access.sources import LEFT_OUT, AskedSource, Errors, ServerSource, in_time
from archec.access.stamps import from_http_date, http_date, last_moment, now_stamp
from archec.config import SourceConfig
from archec.errors import UsageError
from archec.ids import without_userinfo
from archec.web.door import Response, same_origin

T = TypeVar("T")
Link = tuple[str, Mapping[str, str]]

_LINK = re.compile(r'<([^<>]*)>\s*((?:;\s*[\w-]+\s*=\s*(?:"[^"]*"|[^\s",;]+)\s*){0,100})')
_ATTRIBUTE = re.compile(r';\s*([\w-]+)\s*=\s*(?:"([^"]*)"|([^\s",;]+))')
_MAX_PAGES = 100
_MAX_PAGE = 64 << 20
"""Maximum size in bytes of a page of a TimeMap."""
_MAX_OTHERS = 1000
"""Maximum number of lines in a row that are no rows."""
_NO_LIMIT = "1000000000"
"""A limit for all rows, in place of the default of pywb's dialect, 100,000. To some servers 0 means no rows."""
_SMALL = 1 << 16
"""Size in bytes up to which parsing an answer is faster than switching to a thread."""
_IA_FIELDS = ("timestamp", "url", "mime", "status", "digest", "length")
"""Fields that mean the same on all servers. Keys do not: each server makes its own."""
_IA_NAMES = {"url": "original", "mime": "mimetype", "status": "statuscode"}


class RemoteSource(ServerSource, AskedSource):
    """Base class of sources on other servers. ``seconds`` is the timeout, which is extended by the data that arrive;
    None if the source is in a group, which limits the time."""

    def __init__(self, config: SourceConfig, web: Web, seconds: float | None, cache: float) -> None:
        super().__init__(config.name)
        self.type = str(config.type)
        self._config, self._web, self._seconds = config, web, seconds
        self._replay_url = UrlTemplate(without_userinfo(config.replay_url))
        self._cache = Cache(cache)

    async def ask(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        if self.is_out:
            errors[self.name] = LEFT_OUT
            return ()
        try:
            rows = await self._rows(query, errors)
        except SourceFailed as error:
            self.failed(error.message, errors)
            return ()
        except UsageError as error:
            errors[self.name] = error.message
            return ()
        self.health.answered()
        return (rows,)

    @abstractmethod
    async def _rows(self, query: Query, errors: Errors) -> Iterator[Row]: ...

    async def _beside(self, answer: Fetched, parse: Callable[[], T]) -> T:
        """Parses a large answer in a thread and within the timeout, so that it holds up nobody else."""
        try:
            if answer.size <= _SMALL:
                return parse()
            with nullcontext() if self._seconds is None else in_time(self._seconds):
                return await to_thread.run_sync(parse, abandon_on_cancel=True)
        except BaseException:
            answer.body.close()  # so that an abandoned thread ends
            raise

    def _named_values(self, query: Query) -> dict[str, str]:
        """The values for ``{NAME}`` in templates: ``param.NAME``, and for this source only ``param.SOURCE.NAME``."""
        found = ((name[6:], value) for name, value in query.take.given if name.startswith("param."))
        own = {name.removeprefix(f"{self.name}."): value for name, value in found}
        return {name: value for name, value in own.items() if "." not in name} if own else own

    def _origin(self, named: Mapping[str, str]) -> RowOrigin:
        """The origin of rows, which includes the remote collection if ``src_coll`` names one."""
        coll = named.get("src_coll", "")
        return RowOrigin(f"{self.name}:{coll}" if coll else self.name, self.name, self.type)

    def _loadable(self, row: Row, named: Mapping[str, str]) -> Row:
        """Adds the URL of its capture to a row. A URL that the source itself stated is used only if it has the origin
        of ``replay_url``. If that is empty, rows are of WARC files and have none."""
        fields = {**row.fields}
        load_url = fields.pop("load_url", "")
        own = str(fields.pop("live_url", load_url))
        address = self._replay_url.filled({**named, "url": row.url, "timestamp": row.timestamp[:14]})
        if own and same_origin(own, address):
            address = without_userinfo(own)
        if address:
            fields["live_url"] = fields["load_url"] = address
        return Row(row.line, row.urlkey, row.timestamp, fields, row.origin)


class CdxSource(RemoteSource):
    """A CDX server with the dialect of pywb or of the Internet Archive."""

    def __init__(self, config: SourceConfig, web: Web, seconds: float | None, cache: float) -> None:
        super().__init__(config, web, seconds, cache)
        self._api_url = UrlTemplate(config.api_url)
        path, _, query = config.api_url.partition("?")
        self._is_ia = path.rstrip("/").endswith("/cdx/search/cdx")
        self._stated = {part.partition("=")[0] for part in query.split("&")}

    async def _rows(self, query: Query, errors: Errors) -> Iterator[Row]:
        named = self._named_values(query)
        url = self.url_of(query, named)
        key = (url, query.range, query.source_order, *named.items())
        rows: Iterable[Row] | None = self._cache.get(key)
        if rows is None:
            answer = await fetch(self._web, "GET", url, url, self._seconds)
            rows = []
            if answer is not None:
                parsed = self._parsed(answer, query, self._origin(named))
                is_asked = not (self._is_ia and query.source_order == "reverse")
                rows = await self._beside(answer, partial(_in_order, parsed, query, is_asked=is_asked))
            if answer is not None and (reported := errors_reported_in(answer.headers)):
                errors[self.name] = reported  # and the next request asks again
            else:
                self._cache.keep(key, rows)
        return (self._loadable(row, named) for row in rows)

    def url_of(self, query: Query, named: Mapping[str, str]) -> str:
        """The URL of the request for a query. Parameters that the server may not understand are not sent, but applied
        here."""
        is_ia, take, order = self._is_ia, query.take, query.source_order
        closest = query.closest if order == "closest" else ""
        stated = {"url": query.posted or query.url, "closest": closest, "timestamp": query.closest}
        url = self._api_url.filled({**take.first, **named, **stated})
        is_sorted = closest or (order == "reverse" and not is_ia)
        resolves = query.resolve_revisits  # before all others, among rows of all times
        since, until = ("", "") if resolves else (query.since, query.until)
        filters = () if resolves else query.filters
        texts = [_ia_filter(one) if is_ia else _pywb_filter(one) for one in filters]
        is_final = not resolves and query.collapse_time < 0 and query.order == order
        pushed = is_final and all(texts) and not (is_ia and order == "reverse")
        limit = str(query.limit or "") if query.may_push_limit and pushed else ""
        limit = _NO_LIMIT if query.limit is None and not is_ia and not closest else limit
        more = [
            ("matchType", "" if query.match == "exact" else query.match),
            ("sort", order if is_sorted else ""),
            ("from", since and _whole_parts(take.one("from", "from_ts"), since)),
            ("to", until and _whole_parts(take.one("to"), last_moment(take.one("to")[:14]))),
            *(("filter", text) for text in texts),
            ("limit", limit),
        ]
        added = [f"{name}={escaped(value)}" for name, value in more if value and name not in self._stated]
        if not added:
            return url
        return f"{url}{'&' if '?' in url else '?'}{'&'.join(added)}"

    def _parsed(self, answer: Fetched, query: Query, origin: RowOrigin) -> Iterator[Row]:
        start, end = query.range[:2]
        wrong, rows, others = b"", 0, 0
        for line in answer.lines():
            row = any_row(line, origin)
            if row is None or not row.fields.get("url"):
                wrong, others = wrong or line, others + 1
                if others > _MAX_OTHERS:
                    raise SourceFailed("its answer is not CDX")
                continue
            rows, others = rows + 1, 0
            if not start <= row.line < end:
                row = _with_our_key(row)
                if row is None or not start <= row.line < end:
                    continue
            yield row
        if wrong and not rows:
            raise SourceFailed("its answer is not CDX")


class MementoSource(RemoteSource):
    """A Memento archive (RFC 7089) with TimeGate, TimeMap or both."""

    async def ask(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        if query.posted:
            return ()  # its mementos are of GET
        if query.key:
            return await super().ask(query, errors)
        errors[self.name] = "a Memento archive supports single URLs only"
        return ()

    async def _rows(self, query: Query, errors: Errors) -> Iterator[Row]:
        in_interval = self._config.timemap_url and (query.since or query.until)  # a TimeGate names few mementos
        by_gate = bool(query.closest and self._config.timegate_url and not in_interval)
        named = self._named_values(query)
        key = (query.url, query.key, query.closest if by_gate else "", *named.items())
        rows = self._cache.get(key)
        if rows is None:
            reported = errors.get(self.name)
            rows = await (self._by_timegate(query, errors) if by_gate else self._by_timemap(query, errors))
            if errors.get(self.name) == reported:  # else the next request asks again
                self._cache.keep(key, rows)
        meant = (row for row in rows if query.range.start <= row.line < query.range.end)
        return (self._loadable(row, named) for row in source_rows(meant, query))

    async def _by_timegate(self, query: Query, errors: Errors) -> list[Row]:
        values = {"url": uri_of(query.url), "timestamp": query.closest}
        url = UrlTemplate(self._config.timegate_url).filled(values)
        headers = {"Accept-Datetime": http_date(query.closest)}
        answer = await fetch(self._web, "HEAD", url, url, self._seconds, headers=headers, is_final=self._is_final)
        if answer is None:
            return []
        answer.body.close()
        found = list(self._mementos(list(parse_links(answer.headers.get("link", ""))), query))
        if not found and self._config.timemap_url:
            found = await self._by_timemap(query, errors)
        if not found and (date := answer.headers.get("memento-datetime", "")):
            uri = without_userinfo(joined(answer.url, answer.headers.get("content-location", "")))
            found = list(self._mementos([(uri, {"rel": "memento", "datetime": date})], query))
        return found

    def _is_final(self, answer: Response) -> bool:
        """Whether the answer of a TimeGate, which must only have the original in its Link, says what is needed, so that
        its redirect to the memento need not be followed."""
        link = answer.headers.get("link", "")
        return "memento-datetime" in answer.headers or (
            "original" in link and ("datetime=" in link or bool(self._config.timemap_url))
        )

    async def _by_timemap(self, query: Query, errors: Errors) -> list[Row]:
        if not self._config.timemap_url:
            raise UsageError("it has no TimeMap: use closest")  # no failure of the TimeGate
        values = {"url": uri_of(query.url), "timestamp": query.closest}
        first = UrlTemplate(self._config.timemap_url).filled(values)
        pages, seen = [first], {first}
        found: dict[bytes, Row] = {}
        is_whole = True
        while pages and len(found) <= MAX_SORTED:
            page = pages.pop(0)
            answer = await fetch(self._web, "GET", page, first, self._seconds)
            if answer is None:
                is_whole &= page == first  # then there are no mementos
                continue
            rows, others, is_page_whole = await self._beside(answer, partial(self._page, answer, query))
            found |= {row.line: row for row in rows}
            new = [further for further in dict.fromkeys(others) if further not in seen]
            taken = new[: _MAX_PAGES - len(seen)]
            is_whole &= is_page_whole and taken == new
            seen.update(taken)
            pages += taken
        if pages or not is_whole or len(found) > MAX_SORTED:
            errors[self.name] = "only a part of its TimeMap could be read: rows may be missing"
        return list(found.values())[:MAX_SORTED]

    def _page(self, answer: Fetched, query: Query) -> tuple[list[Row], list[str], bool]:
        """The mementos on a page of a TimeMap, the URLs of the pages that it names, and whether these are all."""
        with answer.body:
            text = answer.body.read(_MAX_PAGE).decode("utf-8", "replace")
        links = list(parse_links(text))
        is_whole = len(links) < MAX_SORTED and answer.size <= _MAX_PAGE
        if text.strip() and not any("rel" in one for _, one in links):
            raise UsageError("its answer is not a TimeMap")  # no failure: archives have such pages for unknown URLs
        pages = (one for one in links if "timemap" in one[1].get("rel", "").split())
        named = (joined(answer.url, uri) for uri, one in pages if "link-format" in one.get("type", "link-format"))
        return list(self._mementos(links, query)), [url for url in named if same_origin(url, answer.url)], is_whole

    def _mementos(self, links: Sequence[Link], query: Query) -> Iterator[Row]:
        origin = self._origin(self._named_values(query))
        url = next((uri for uri, one in links if "original" in one.get("rel", "").split()), "")
        try:
            key = key_of(url) if url else ""
        except UsageError:
            key = ""
        if key != query.key:
            url, key = uri_of(query.url), query.key
        for uri, attributes in links:
            rel = attributes.get("rel", "")
            if "memento" not in rel.split() or "datetime" not in attributes:
                continue
            try:
                stamp = from_http_date(attributes["datetime"])
            except UsageError:
                continue
            fields = {"url": url, "mem_rel": rel, "memento_url": uri}
            yield made_row(key, stamp, fields, origin)


class LiveSource(AskedSource):
    """The live web as an index: every URL has one capture, now."""

    type = "live"

    def __init__(self, name: str, is_on: bool) -> None:
        super().__init__(name)
        self._is_on = is_on

    async def ask(self, query: Query, errors: Errors) -> Sequence[Iterator[Row]]:
        if not self._is_on:
            errors[self.name] = "the live web is off (access.live)"
        elif not query.may_live:
            errors[self.name] = "the live web is for index and resource, with the right 'live'"
        elif query.key:
            url, stamp = uri_of(query.url), now_stamp()
            fields = {"url": url, "live_url": url, "load_url": url, "is_live": "true"}
            origin = RowOrigin(self.name, self.name, "live")
            return (iter((made_row(query.key, stamp, fields, origin),)),)
        return ()


def parse_links(text: str) -> Iterator[Link]:
    """Yields target and attributes of each link in a ``Link`` header or a TimeMap, up to MAX_SORTED."""
    for match in islice(_LINK.finditer(text), MAX_SORTED):
        pairs = ((one[1].lower(), one[2] if one[2] is not None else one[3]) for one in _ATTRIBUTE.finditer(match[2]))
        yield match[1], dict(pairs)


def _in_order(rows: Iterator[Row], query: Query, *, is_asked: bool) -> list[Row] | Iterator[Row]:
    """Sorts rows in the order in which sources are queried, if they are few. A longer list must be sorted already.
    Raises UsageError if it cannot be, as the server was not asked for the order (``is_asked``)."""
    first = list(islice(rows, MAX_SORTED))
    if len(first) < MAX_SORTED:
        return source_rows(first, query)
    if not is_asked:
        raise UsageError(f"sort=reverse: an index has {MAX_SORTED} captures or more: limit the time with from and to")
    return _checked(chain(first, rows), query)


def _checked(rows: Iterator[Row], query: Query) -> Iterator[Row]:
    key, reverse = row_key(query, query.source_order), query.source_order == "reverse"
    before = None
    for row in rows:
        now = key(row)
        if before is not None and (now > before if reverse else now < before):
            raise SourceFailed("its rows are not sorted")
        before = now
        yield row


def _with_our_key(row: Row) -> Row | None:
    try:
        key = key_of(row.url)
    except UsageError:
        return None
    return made_row(key, row.timestamp, row.fields, row.origin)


def _whole_parts(given: str, padded: str) -> str:
    """A shortened timestamp, or the padded one if it ends within a part: servers pad that in different ways."""
    return padded if len(given) % 2 else given


def _pywb_filter(one: Filter) -> str:
    """A filter in the dialect of pywb. "" if its field has another value or meaning there."""
    if not one.field:
        return one.text
    if one.field not in (*_IA_FIELDS, "offset", "filename"):
        return ""
    mark = "!" if one.inverted else ""
    kind = one.text.removeprefix("!")[0]
    return f"{mark}{kind if kind in '=~' else ''}{one.field}:{one.text.partition(':')[2]}"


def _ia_filter(one: Filter) -> str:
    """A filter in the dialect of the Internet Archive, whose patterns match whole values. "" if it cannot be
    expressed."""
    if one.field not in _IA_FIELDS:
        return ""
    text = one.text.removeprefix("!")
    value = text.partition(":")[2]
    if text[:1] == "=":
        pattern = re.escape(value)
    else:
        pattern = f"(?:{value}).*" if text[:1] == "~" else f".*{re.escape(value)}.*"
    return f"{'!' if one.inverted else ''}{_IA_NAMES.get(one.field, one.field)}:{pattern}"
