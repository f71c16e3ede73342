"""A peer's OAI-PMH provider over records in memory: run by the Python of the environment that has it.

    python -m benchmarks.oai_peer pyoai|oai-repo RECORDS PORT

It speaks HTTP by uvicorn, as archec does, but without anything between the two: no routing, no threads.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs, parse_qsl

from benchmarks.oai_records import FIRST, SETS, fields, handle, is_deleted, stamp

PAGE = 100
Answer = Callable[[dict[str, str]], bytes]


def pyoai(count: int, base: str) -> Answer:
    """pyoai's BatchingServer, which asks for a page at a time; its plain Server makes the whole list for each."""
    cgi: Any = types.ModuleType("cgi")  # parse_qs has left it, and it has left Python
    cgi.parse_qs = parse_qs
    sys.modules["cgi"] = cgi
    from oaipmh.common import Header, Identify, Metadata
    from oaipmh.metadata import MetadataRegistry
    from oaipmh.server import BatchingServer, oai_dc_writer

    def record(n: int) -> tuple[Any, Any, None]:
        values: dict[str, list[str]] = {}
        for name, value in fields(n):
            values.setdefault(name, []).append(value)
        header = Header(None, f"oai:bench.example.org:{handle(n)}", _naive(stamp(n)), list(SETS), is_deleted(n))
        return header, Metadata(None, values), None

    records = [record(n) for n in range(count)]
    about = Identify(
        "Bench", base, "2.0", ["a@example.org"], _naive(FIRST), "persistent", "YYYY-MM-DDThh:mm:ssZ", ["identity"],
        toolkit_description=False,
    )  # fmt: skip

    class Provider:
        def identify(self) -> Any:
            return about

        def listRecords(self, metadataPrefix: str, cursor: int = 0, batch_size: int = PAGE, **_: Any) -> Any:
            return records[cursor : cursor + batch_size]

    registry = MetadataRegistry()
    registry.registerWriter("oai_dc", oai_dc_writer)
    server = BatchingServer(Provider(), metadata_registry=registry, resumption_batch_size=PAGE)
    return lambda arguments: bytes(server.handleRequest(arguments))


def oai_repo(count: int, base: str) -> Answer:
    """oai_repo. It has no way to send a deleted record in a list: a record without metadata is left out."""
    import oai_repo as package
    from lxml import etree

    dc, container = "{http://purl.org/dc/elements/1.1/}", "{http://www.openarchives.org/OAI/2.0/oai_dc/}"
    spaces = {"oai_dc": container[1:-1], "dc": dc[1:-1]}
    locals_ = [f"oai:bench.example.org:{handle(n)}" for n in range(count)]
    headers = {
        local: package.RecordHeader(local, _when(stamp(n)), list(SETS), "deleted" if is_deleted(n) else None)
        for n, local in enumerate(locals_)
    }
    values = {local: fields(n) for n, local in enumerate(locals_)}
    about = package.Identify(
        "Bench", base, ["a@example.org"], _when(FIRST), "persistent", "YYYY-MM-DDThh:mm:ssZ", [], []
    )
    form = package.MetadataFormat("oai_dc", "http://www.openarchives.org/OAI/2.0/oai_dc.xsd", container[1:-1])

    class Provider(package.DataInterface):  # type: ignore[misc]
        limit = PAGE

        def get_identify(self) -> Any:
            return about

        def is_valid_identifier(self, identifier: str) -> bool:
            return identifier in headers

        def get_metadata_formats(self, identifier: str | None = None) -> Any:
            return [form]

        def get_record_header(self, identifier: str) -> Any:
            return headers[identifier]

        def get_record_metadata(self, identifier: str, metadataprefix: str) -> Any:
            if headers[identifier].status:
                return None
            root = etree.Element(f"{container}dc", nsmap=spaces)
            for name, value in values[identifier]:
                etree.SubElement(root, dc + name).text = value
            return root

        def get_record_abouts(self, identifier: str) -> Any:
            return []

        def list_set_specs(self, identifier: str | None = None, cursor: int = 0) -> Any:
            return list(SETS), len(SETS), None

        def list_identifiers(
            self, metadataprefix: str, filter_from: Any = None, filter_until: Any = None, filter_set: Any = None,
            cursor: int = 0,
        ) -> Any:  # fmt: skip
            return locals_[cursor : cursor + PAGE], count, None

    repository = package.OAIRepository(Provider())
    return lambda arguments: bytes(repository.process(arguments))


PEERS: dict[str, tuple[str, Callable[[int, str], Answer]]] = {
    "pyoai": ("pyoai", pyoai),
    "oai-repo": ("oai_repo", oai_repo),
}


def application(answer: Answer) -> Any:
    """An ASGI application: query string in, answer out."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = answer(dict(parse_qsl(scope["query_string"].decode("ascii"), keep_blank_values=True)))
        headers = [(b"content-type", b"text/xml; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def _naive(tist: int) -> datetime:
    return datetime.fromtimestamp(tist, tz=timezone.utc).replace(tzinfo=None)


def _when(tist: int) -> str:
    return _naive(tist).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    import uvicorn

    peer, many, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    made = PEERS[peer][1](many, f"http://127.0.0.1:{port}/oai")
    uvicorn.run(application(made), host="127.0.0.1", port=port, lifespan="off", access_log=False, log_level="warning")
