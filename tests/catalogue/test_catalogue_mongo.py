"""What only the MongoDB engine can get wrong: its server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mongomock
import pymongo
import pytest
from catalogue_data import HOSTILE, checksum, fobi, lot, tobi
from mongod import Mongod

from archec.catalogue import mongo_documents as documents
from archec.catalogue.dump import dump
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import DataSet, Fobi, Position, Run, SeenSet, TextPlace, TobiNote
from archec.catalogue.mongo import MongoCatalogue
from archec.catalogue.open import open_catalogue
from archec.errors import CatalogueError, CatalogueGone


def test_acknowledged_lots_survive_kill_9_of_the_server(own_mongod: Mongod) -> None:
    """Thrice: lots are written until the server is killed; what was acknowledged is there again."""
    acknowledged = 0
    MongoCatalogue(own_mongod.url("kill"), create=True).close()

    def write_on(catalogue: Catalogue, until: int, then: threading.Event) -> None:
        nonlocal acknowledged
        while True:
            number = acknowledged + 1
            catalogue.write(lot(number, tobis=[tobi(f"{number}-{i}") for i in range(300)], mentioned=[str(number)]))
            acknowledged = number
            if number == until:
                then.set()

    for _ in range(3):
        catalogue = MongoCatalogue(own_mongod.url("kill"))
        assert catalogue.position().batch >= acknowledged
        acknowledged = catalogue.position().batch
        killer = threading.Event()
        thread = threading.Thread(target=lambda event: event.wait() and own_mongod.kill(), args=(killer,))
        thread.start()
        with pytest.raises(CatalogueGone) as caught:
            write_on(catalogue, acknowledged + 5, killer)
        thread.join()
        assert "went away" in caught.value.message
        assert f"127.0.0.1:{own_mongod.port}" in caught.value.message
        with pytest.raises(CatalogueGone):
            list(catalogue.scan_tobis())
        catalogue.close()
        own_mongod.start()
        catalogue = MongoCatalogue(own_mongod.url("kill"))
        assert catalogue.position() in (Position(1000, n, 2000 + n) for n in (acknowledged, acknowledged + 1))
        for number in range(1, acknowledged + 1):
            assert len(catalogue.tobis([f"{number}-{i}" for i in range(300)])) == 300
            assert str(number) in catalogue.fobis([str(number)])
        catalogue.close()


def test_a_lot_cut_off_by_the_server_is_finished_by_writing_it_again(own_mongod: Mongod, tmp_path: Path) -> None:
    changes = lot(1, tobis=[tobi(f"{i:05d}", 1, 2) for i in range(8000)], mentioned=["u"], runs=[Run(1)])
    catalogue = MongoCatalogue(own_mongod.url("cut"), create=True)
    watch: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(own_mongod.url("cut"))

    def kill_in_the_middle() -> None:
        while watch.cut.mi.estimated_document_count() == 0:
            pass
        own_mongod.kill()

    thread = threading.Thread(target=kill_in_the_middle)
    thread.start()
    with pytest.raises(CatalogueGone):
        catalogue.write(changes)
    thread.join()
    watch.close()
    own_mongod.start()
    assert catalogue.position() == Position()  # the same object finds the server again
    catalogue.write(changes)
    whole = open_catalogue("sqlite:///c.sqlite", base=tmp_path, create=True)
    whole.write(changes)
    assert list(dump(catalogue, everything=True)) == list(dump(whole, everything=True))
    whole.close()
    catalogue.close()


@pytest.fixture
def own_mongod(mongod_binary: Path, tmp_path: Path) -> Iterator[Mongod]:
    """A server of this test's own, to kill."""
    if os.environ.get("ARCHEC_TEST_MONGODB"):
        pytest.skip("the operator's server is not killed")
    mongod = Mongod(mongod_binary, tmp_path / "data")
    mongod.start()
    yield mongod
    mongod.kill()


@pytest.fixture
def catalogue(mongodb_url: str) -> Iterator[MongoCatalogue]:
    catalogue = MongoCatalogue(mongodb_url, create=True)
    yield catalogue
    catalogue.close()


@pytest.fixture
def raw(mongodb_url: str) -> Iterator[Any]:
    """The database as pymongo shows it."""
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(mongodb_url)
    yield client.get_default_database()
    client.close()


def test_documents_have_the_papers_shape(catalogue: MongoCatalogue, raw: Any) -> None:
    catalogue.write(lot(1, tobis=[tobi("a", 2, 1, lost=True)], mentioned=["u"]))
    document = raw.mi.find_one({"_id": "a"})
    assert list(document["h"].items()) == [("1", checksum("a@1")), ("2", None)]
    assert raw.mo.find_one() == {"_id": "u", "h": {}, "due": 0, "stamp": 0}
    assert (document["at"], document["lost"], document["refs"]) == ([1, 2], 2, ["http://h/1.pdf", "http://h/2.pdf", "http://h/all"])
    both = {"_id_", *(f"{field}_1__id_1" for field in ("stamp", "at", "back", "lost"))}
    assert set(raw.mi.index_information()) == both | {"refs_1__id_1"}
    assert set(raw.mo.index_information()) == both | {"due_1__id_1"}


def test_pages_read_no_more_than_they_give(catalogue: MongoCatalogue, raw: Any) -> None:
    catalogue.write(lot(1, tobis=[tobi(f"{i:04d}") for i in range(2000)], mentioned=[f"{i:04d}" for i in range(2000)]))
    for name, where, order in [
        ("mi", {"_id": {"$gt": "1800"}}, ["_id"]),
        ("mi", {"stamp": 1, "_id": {"$gt": "1800"}}, ["stamp", "_id"]),
        ("mo", {"due": 0, "_id": {"$gt": "1800"}}, ["due", "_id"]),
        ("mo", {"stamp": {"$gt": -1}}, ["stamp", "_id"]),
    ]:
        cursor = raw[name].find(where).sort([(field, 1) for field in order]).limit(10)
        stats = cursor.explain()["executionStats"]
        assert stats["totalKeysExamined"] <= 11, (name, where)
        assert stats["totalDocsExamined"] <= 10, (name, where)


def test_a_document_beyond_16_mb(catalogue: MongoCatalogue) -> None:
    notes = {tist: TobiNote(1, "new", "x" * 1000) for tist in range(17_000)}
    huge = tobi("huge", 1)
    huge = type(huge)(huge.id, huge.handle, huge.history, huge.versions, notes, huge.stamp)
    with pytest.raises(CatalogueError, match="16 MB") as caught:
        catalogue.write(lot(1, tobis=[tobi("a"), huge]))
    assert "huge" in caught.value.message
    assert len(caught.value.message) < 600
    assert catalogue.position() == Position()


def test_a_foreign_database_is_refused_and_left_alone(mongodb_url: str, raw: Any) -> None:
    raw.mi.insert_one({"_id": 1})
    for create in (True, False):
        with pytest.raises(CatalogueError, match="something else"):
            MongoCatalogue(mongodb_url, create=create)
    assert raw.list_collection_names() == ["mi"]


def test_another_schema_version_is_refused(catalogue: MongoCatalogue, mongodb_url: str, raw: Any) -> None:
    raw.state.update_one({"_id": "schema"}, {"$set": {"version": 99}})
    with pytest.raises(CatalogueError, match="version 99, this archec works with 2"):
        MongoCatalogue(mongodb_url, create=True)


@pytest.mark.parametrize("h", [None, [], {"x": "y"}, {"1": "y", "z": None}])
def test_documents_of_someone_else(catalogue: MongoCatalogue, raw: Any, h: object) -> None:
    catalogue.write(lot(1))
    raw.mi.insert_one({"_id": "a", "h": h})
    raw.mo.insert_one({"_id": "a", "h": h})
    raw.vi.insert_one({"_id": "a", "h": h})
    raw.data_sets.insert_one({"_id": "a", "partial": h})
    raw.runs.insert_one({"_id": "a", "h": h})
    raw.state.update_one({"_id": "position"}, {"$unset": {"run": 1}})
    for read in (
        lambda: [list(catalogue.scan_tobis()), list(catalogue.all_tobis())],
        lambda: list(catalogue.all_fobis()),
        lambda: list(catalogue.texts("vi")),
        catalogue.data_sets,
        catalogue.runs,
        catalogue.position,
    ):
        with pytest.raises(CatalogueError):
            read()


def test_the_operators_write_concern_cannot_weaken_the_promise(mongodb_url: str) -> None:
    mark = "&" if "?" in mongodb_url else "?"
    catalogue = MongoCatalogue(f"{mongodb_url}{mark}w=0&readPreference=secondary", create=True)
    assert catalogue._db.write_concern.document == {"w": "majority", "j": True, "wtimeout": 60_000}
    catalogue.write(lot(1, tobis=[tobi("a")]))
    assert catalogue.tobis(["a"]) == {"a": tobi("a")}
    catalogue.close()


# -- mongomock ------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Catalogue, Catalogue]]:
    """The same content in SQLite and in mongomock.

    mongomock's ``bulk_write`` does not take what pymongo gives it, so nothing is written through
    the catalogue here: documents are inserted one by one, and everything that reads is compared.
    """
    tobis = [tobi("a", 2, 1, stamp=3), tobi("b", 4, lost=True), *(tobi(obi, stamp=2) for obi in HOSTILE)]
    fobis = [fobi("u", 1, due=9), fobi("v", due=8, stamp=4), *(fobi(obi, 3) for obi in HOSTILE)]
    runs, sets, seen = [Run(2, "done"), Run(1)], [DataSet(1, partial={"a.$\0": ("k",)})], SeenSet("k", b"12345678")
    place = TextPlace(checksum("x"), 1, "a")
    client: Any = mongomock.MongoClient("mongodb://mock/archec")
    mock = MongoCatalogue("mongodb://mock/archec", create=True, client=client)
    db = client.archec
    db.mi.insert_many([documents.tobi_document(t) for t in tobis])
    db.mo.insert_many([documents.fobi_document(f) for f in [*fobis, Fobi("w")]])
    db.runs.insert_many([documents.run_document(run) for run in runs])
    db.data_sets.insert_many([documents.data_set_document(s) for s in sets])
    db.seen.insert_many(documents.seen_documents(seen))
    db.vi.insert_one({"_id": place.text, "at": {"tist": place.tist, "id": place.id}})
    db.state.insert_one({"_id": "position", **Position(1000, 1, 2001)._asdict()})
    real = open_catalogue("sqlite:///c.sqlite", base=tmp_path, create=True)
    real.write(lot(1, tobis=tobis, fobis=fobis, mentioned=["w"], runs=runs, data_sets=sets, seen=[seen], vi=[place]))
    yield real, mock
    real.close()


READS: list[Callable[[Catalogue], object]] = [
    lambda c: list(dump(c, everything=True)),
    lambda c: list(dump(c, everything=False)),
    lambda c: list(c.scan_tobis("a")),
    lambda c: c.tobis(["a", *HOSTILE, "none"]),
    lambda c: c.fobis(["u", *HOSTILE, "none"]),
    lambda c: c.changed_tobis(2, "a"),
    lambda c: c.changed_fobis(0, "", 3),
    lambda c: list(c.due(8)),
    lambda c: c.text("vi", checksum("x")),
    lambda c: c.text("vo", checksum("x")),
    lambda c: c.seen("k"),
]


def test_mongomock_reads_alike(two: tuple[Catalogue, Catalogue]) -> None:
    real, mock = two
    for read in READS:
        assert read(mock) == read(real)
