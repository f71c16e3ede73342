"""What is asked of a collection, by its path."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response

from archec.access.collection import Collection
from archec.access.errors import Refused
from archec.access.exchange import JSON, Exchange, answer, first_part
from archec.access.index import answer_index, list_sources
from archec.access.query import parse_query
from archec.access.viewer import Viewer
from archec.config import Config

MODES = ["list_sources", "index", "resource"]


class Api:
    """The routes of the collections."""

    def __init__(self, config: Config, collections: Mapping[str, Collection]) -> None:
        self._config, self._collections = config, collections

    async def answer(self, exchange: Exchange, viewer: Viewer) -> Response:
        """The answer to a request. Raises Refused, and ArchecError for what is wrong with it."""
        name, rest = first_part(exchange.path)
        collection = self._collections.get(name)
        if collection is None or not viewer.opens(name):
            raise viewer.nothing(f"Collection not found: {name}")
        exchange.note["collection"] = name
        mode = rest.rstrip("/")
        if not mode:
            return answer(200, json.dumps({"modes": MODES}) + "\n", JSON)
        if mode == "list_sources":
            return list_sources(collection)
        if mode in ("index", "index/postreq", "cdx"):
            exchange.note["kind"] = "index"
            query = parse_query(exchange.arguments)
            exchange.note["url"] = query.url
            return await answer_index(collection, query, viewer, empty_is_missing=mode == "cdx")
        raise Refused(404, f"Not found: {exchange.path}")
