"""The routes of the access layer: dispatches the requests to a collection by path and method."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote, unquote

from anyio import to_thread
from msgspec.structs import replace
from starlette.responses import Response

from archec.access import memento
from archec.access.collection import Collection, Lookup, Step
from archec.access.errors import Refused, unauthorized
from archec.access.exchange import HTML, JSON, Exchange, answer, errors_of
from archec.access.feeding import add, parse_rows, remove
from archec.access.gate import Viewer
from archec.access.index import answer_index, list_sources
from archec.access.memento import Addresses
from archec.access.posts import Asked, PostedBody, parse_request, url_of_request
from archec.access.query import Query, all_of, parse_query, whole_url
from archec.access.record import ClosedOnFailure
from archec.access.replay import answer_replay
from archec.access.resource import Loaded, answer_record, load
from archec.access.rows import Row
from archec.access.stamps import checked, from_http_date, last_moment
from archec.access.warc_ranges import answer_slice
from archec.access.wayback import answer_wayback
from archec.config import Config

MODES = ["list_sources", "index", "resource"]
_RAW_BODY = ("resource-post", "resource/postreq", "index/postreq")
"""Modes in which the body of a POST is a raw HTTP request."""
_READING = ("GET", "HEAD")
_METHODS = {
    **dict.fromkeys(("", "delete", "index"), (*_READING, "POST")),
    **dict.fromkeys(_RAW_BODY, ("POST",)),
}
"""The methods of modes that accept more than GET and HEAD. ``resource`` accepts any."""

_NO_STEPS = (Step((), (), (), 0.0, grouped=False),)
_OF_DEFAULT = ("web", "wayback", "cdx")
"""First parts of paths that mean the default collection."""
_SERVED = {"/wayback": "available", "/cdx": "search/cdx"}
"""What is served below two of them."""
_MEMENTO = re.compile(r"([0-9]{1,14}|[0-9]{17})(?:(?:id|im|js|cs|if|mp)_)?/(.+)", re.S)
_TIMEMAP = re.compile(r"timemap/([^/:]+)/(?:([0-9]{1,9})/)?(.+)", re.S)


class Api:
    """The routes of the collections."""

    def __init__(self, config: Config, collections: Mapping[str, Collection]) -> None:
        self._config, self._collections = config, collections
        self._default = config.access.default or next(iter(collections), "")

    async def answer(self, exchange: Exchange, viewer: Viewer) -> Response:
        """Returns the response to a request. Raises Refused, or ArchecError if the request is invalid."""
        first, _, rest = exchange.path[1:].partition("/")
        shown = unquote(first)
        mode = f"/{shown}" if shown in _OF_DEFAULT else rest.rstrip("/")
        asked = exchange.take.one("collection") if shown == "cdx" else ""
        name = asked or (self._default if shown in _OF_DEFAULT else shown)
        collection = self._collections.get(name)
        if collection is None and viewer.sees_nothing_by_default:
            collection = Collection(name, _NO_STEPS)  # refused like one in which nothing is found, in the same time
        elif collection is None or not viewer.opens(name):
            raise viewer.refusal(404, f"Collection not found: {asked or shown}")
        else:
            exchange.note["collection"] = name
        lookup = Lookup(collection, viewer)
        methods = _METHODS.get(mode, _READING)
        if exchange.method not in methods and mode != "resource":
            viewer.check_empty()
            allow = ("Allow", ", ".join((*methods, "OPTIONS")))
            if exchange.method == "OPTIONS":
                return answer(204, b"", "text/plain", [allow])
            raise Refused(405, f"{exchange.method[:20]} is not one of {', '.join(methods)}", (allow,))
        if mode in _SERVED:
            if rest.rstrip("/") != _SERVED[mode]:
                raise viewer.refusal(404, f"Not found: {exchange.path}")
            return await (self._available if mode == "/wayback" else self._cdx)(exchange, lookup)
        if exchange.method == "POST" and mode in ("", "delete"):
            return await self._feed(exchange, lookup, mode)
        if not mode:
            viewer.check_empty()
            return answer(200, json.dumps({"modes": MODES}) + "\n", JSON)
        if mode.startswith("warc/"):
            exchange.note["kind"] = "warc"
            return await answer_slice(exchange, lookup, unquote(mode.removeprefix("warc/")))
        if mode == "list_sources":
            viewer.check_empty()
            return list_sources(collection)
        if mode in ("index", "cdx"):
            return await self._index(exchange, lookup, await self._asked(exchange), mode == "cdx")
        if mode == "resource":
            return await self._resource(exchange, lookup, await self._asked(exchange))
        if mode in _RAW_BODY:
            answered = self._index if mode == "index/postreq" else self._resource
            return await answered(exchange, lookup, parse_request(await self._body(exchange)))
        return await self._memento(exchange, lookup, self._base(exchange, shown), rest)

    # -- Memento ------------------------------------------------------------------------------------

    async def _memento(self, exchange: Exchange, lookup: Lookup, base: str, rest: str) -> Response:
        if exchange.query_string:
            rest += f"?{exchange.query_string}"
        if timemap := _TIMEMAP.fullmatch(rest):
            exchange.note |= {"kind": "timemap", "url": timemap[3]}
            at = Addresses(base, whole_url(timemap[3]))
            return await memento.timemap(lookup, at, timemap[1], int(timemap[2] or 0))
        given = _MEMENTO.fullmatch(rest)
        url = whole_url(given[2] if given is not None else rest.removeprefix("id_/"))
        exchange.note |= {"kind": "timegate" if given is None else "replay", "url": url}
        if given is not None:
            stamp = last_moment(given[1])
        else:
            accept = exchange.headers.get("accept-datetime", "")
            stamp = from_http_date(accept) if accept else ""
        at = Addresses(base, url)
        view = await memento.view(lookup, url, stamp)
        if view is None:
            return memento.no_memento(lookup)
        if given is None and not rest.startswith("id_/"):
            return memento.timegate(at, view, await to_thread.run_sync(lookup.lost, url), lookup.errors)
        wanted = view.chosen.timestamp
        if given is None or wanted == given[1]:
            loaded = await load(lookup, all_of(url, wanted), spelled=url)
        else:
            found = await self._instead(lookup, view.chosen, url, stamp) if len(given[1]) >= 14 else None
            if found is None:
                return answer(302, b"", HTML, [("Location", at.memento(view.chosen)), *errors_of(lookup.errors)])
            loaded, wanted = found, given[1]
        if loaded.row.timestamp != wanted:
            await loaded.record.close()
            more = [*([("Vary", "accept-datetime")] if given is None else []), *errors_of(lookup.errors)]
            return answer(302, b"", HTML, [("Location", at.memento(loaded.row)), *more])
        exchange.note["source"] = loaded.row.origin.source
        async with ClosedOnFailure(loaded.record.close):
            links = memento.links(at, view._replace(chosen=loaded.row))  # of several at one time
            return answer_replay(exchange, loaded, at, links, lookup.errors, negotiated=given is None)

    async def _instead(self, lookup: Lookup, nearest: Row, url: str, stamp: str) -> Loaded | None:
        """What a sequence has instead of a memento that is not in the first step that finds any: it may be in a later
        one, which counts where no record of the earlier ones can be loaded. None if the viewer may not have it, nor the
        ``nearest`` if it is of another time."""
        if len(lookup.collection.steps) > 1:
            with suppress(Refused):
                loaded = await load(lookup, all_of(url, stamp), spelled=url)
                async with ClosedOnFailure(loaded.record.close):
                    if loaded.row.timestamp != stamp:
                        lookup.viewer.check_content(nearest)
                return loaded
        return None

    async def _available(self, exchange: Exchange, lookup: Lookup) -> Response:
        url, stamp = exchange.take.one("url"), exchange.take.one("timestamp")
        if not url:
            raise Refused(400, 'The "url" param is required')
        exchange.note |= {"kind": "available", "url": url}
        at = Addresses(self._base(exchange, "web"), url)
        wanted = last_moment(checked("timestamp", stamp)) if stamp else ""
        return await memento.available(lookup, at, wanted, stamp)

    async def _cdx(self, exchange: Exchange, lookup: Lookup) -> Response:
        exchange.note |= {"kind": "index", "url": exchange.take.one("url")}
        return await answer_wayback(exchange, lookup)

    async def _feed(self, exchange: Exchange, lookup: Lookup, mode: str) -> Response:
        """Adds rows to an index, or removes them, with the interface of OutbackCDX."""
        exchange.note["kind"] = "write"
        if lookup.viewer.token is None:
            raise unauthorized()
        if not lookup.viewer.allows("write"):
            raise Refused(403, "The right 'write' is needed")
        if lookup.collection.fed is None:
            raise Refused(400, "no index of this collection can be written")
        if exchange.headers.get("content-encoding", "identity") != "identity":
            raise Refused(415, "the body must not be compressed", (("Accept-Encoding", "identity"),))
        skips_bad = exchange.take.one("badLines") == "skip"
        lines = parse_rows((await self._body(exchange)).lines(), skip_bad=skips_bad)
        change, done = (remove, "Deleted") if mode == "delete" else (add, "Added")
        count = await to_thread.run_sync(change, lookup.collection.fed, lines)
        return answer(200, f"{done} {count} records\n", "text/plain")

    # -- index and resource -------------------------------------------------------------------------

    async def _index(self, exchange: Exchange, lookup: Lookup, asked: Asked, is_cdx: bool = False) -> Response:
        exchange.note["kind"] = "index"
        query = self._query(exchange, lookup.viewer, asked)
        return await answer_index(lookup, query, empty_is_missing=is_cdx)

    async def _resource(self, exchange: Exchange, lookup: Lookup, asked: Asked) -> Response:
        exchange.note["kind"] = "resource"
        query = self._query(exchange, lookup.viewer, asked)
        accept = exchange.headers.get("accept-datetime", "")
        negotiated = not query.closest
        if accept and negotiated:
            query = replace(query, closest=from_http_date(accept), order="closest")
        loaded = await load(lookup, query, asked)
        exchange.note["source"] = loaded.row.origin.source
        packed = exchange.take.one("compress") == "gzip"
        at = Addresses(self._base(exchange, lookup.collection.name), loaded.row.url)
        async with ClosedOnFailure(loaded.record.close):
            return answer_record(loaded, lookup.errors, ", ".join(at.links()), packed=packed, negotiated=negotiated)

    def _query(self, exchange: Exchange, viewer: Viewer, asked: Asked) -> Query:
        """The query in the parameters. A request with a body is looked up under its own key."""
        url = exchange.take.one("url")
        exchange.note["url"] = url
        return parse_query(
            exchange.take,
            posted=url_of_request(url, asked),
            may_live=viewer.allows("live"),
            may_push_limit=viewer.rules.are_trivial,
        )

    async def _asked(self, exchange: Exchange) -> Asked:
        """The request to look up, or to send, for the ``url`` parameter."""
        if exchange.method in ("GET", "HEAD"):
            return Asked()
        kind = exchange.headers.get("content-type", "")
        headers = (("Content-Type", kind),) if kind else ()
        return Asked(exchange.method, headers, await self._body(exchange))

    async def _body(self, exchange: Exchange) -> PostedBody:
        return await exchange.body(self._config.access.max_body, self._config.server.idle_timeout)

    def _base(self, exchange: Exchange, name: str) -> str:
        return f"{self._config.server.url or exchange.base}/{quote(name)}"
