"""archec's OAI-PMH provider over records in memory: the index is the real one, the archive is not there.

python -m benchmarks.oai_archec RECORDS FOLDER PORT
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from archec.config import Config, OaiConfig, ServerConfig
from archec.oai.follow import Follower
from archec.oai.formats.base import XSI, Context, Item, RecordFormat
from archec.oai.index import Index
from archec.oai.index_sqlite import SQLiteIndex
from archec.oai.model import Entry, Row
from archec.oai.repository import Repository, make_repository
from archec.oai.sets import SetRules
from archec.oai.xml import text
from archec.server.app import make_app
from archec.server.observe import log_accesses
from archec.server.run import listen, make_server
from benchmarks.oai_records import SETS, fields, handle, is_deleted, stamp

__all__ = ["fill", "repository"]

_NAMESPACE = "http://www.openarchives.org/OAI/2.0/oai_dc/"
_SCHEMA = "http://www.openarchives.org/OAI/2.0/oai_dc.xsd"
_OPEN = (
    f'<oai_dc:dc xmlns:oai_dc="{_NAMESPACE}" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    f' xmlns:xsi="{XSI}" xsi:schemaLocation="{_NAMESPACE} {_SCHEMA}">'
)
_LOT = 10_000


class _Record:
    """What stands for an item: its Dublin Core."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = pairs


class _Format(RecordFormat):
    """``oai_dc`` of what is Dublin Core already."""

    schema, namespace = _SCHEMA, _NAMESPACE

    def metadata(self, item: Item, context: Context) -> str:
        """See the interface."""
        pairs = cast("_Record", item).pairs
        return _OPEN + "".join([f"<dc:{name}>{text(value)}</dc:{name}>" for name, value in pairs]) + "</oai_dc:dc>"


class _Source:
    """Items out of ``known``, or made as they are asked for where it is empty."""

    def __init__(self, known: Mapping[str, _Record]) -> None:
        self._known = known

    def items(self, rows: Sequence[Row], named: Callable[[Row], str]) -> Iterator[tuple[Row, Item | None]]:
        """See the interface."""
        for row in rows:
            if row.deleted:
                yield row, None
            else:
                known = self._known.get(row.obi) or _Record(fields(int(row.obi.rpartition(":")[2])))
                yield row, cast("Item", known)

    def titles(self, handles: Collection[str]) -> dict[str, str]:
        """None."""
        return {}

    def publisher(self, series: str) -> str:
        """None."""
        return ""

    def earliest(self) -> int | None:
        """The index knows."""
        return None


class _NoFollower(Follower):
    """There is no catalogue to follow."""

    def __init__(self) -> None:
        pass

    def steps(self) -> Iterator[object]:  # type: ignore[override]
        """Level."""
        return iter(())


def fill(index: Index, count: int, told: Callable[[int], None] = lambda done: None) -> None:
    """Puts ``count`` items into an empty index, and opens it to harvesters."""
    for start in range(0, count, _LOT):
        part = range(start, min(count, start + _LOT))
        entries = [
            Entry("tobi", name, name, stamp(n), n, is_deleted(n), SETS) for n, name in ((n, handle(n)) for n in part)
        ]
        index.publish(entries, index.state(), time.time)
        told(part.stop)
    rules = SetRules(OaiConfig().sets, ()).checksum
    index.publish([], index.state()._replace(ready=True, rules=rules), time.time)


def repository(folder: Path, index: Index, *, known: int = 0) -> Repository:
    """A repository of the records in an index; the first ``known`` are kept in memory."""
    config = Config(base=folder, name="Bench", oai=OaiConfig(repositoryIdentifier="bench.example.org", secret="secret"))
    source = _Source({handle(n): _Record(fields(n)) for n in range(known)})
    made = make_repository(config, index, source, environ={})
    return dataclasses.replace(made, formats={"oai_dc": _Format("", "")}, provenance="")


def _serve(count: int, folder: Path, port: int) -> None:
    from archec.oai.router import OaiCapability

    server = ServerConfig(host="127.0.0.1", port=port, access_log="")
    log_accesses("", folder)
    index = SQLiteIndex(folder / "oai.sqlite")
    fill(index, count)
    capability = OaiCapability(Config(base=folder), repository(folder, index, known=count), _NoFollower())
    listener = listen(server)
    make_server(make_app([capability]), server).run(sockets=[listener])
    index.close()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
