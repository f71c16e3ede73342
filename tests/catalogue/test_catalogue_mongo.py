"""What only the MongoDB engine can get wrong: its server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from catalogue_data import COVERAGES, HANDLES, HOSTILE, bare, checksum, fobi, lot, state, tobi, version
from gather_support import archec_inline, make
from mongod import Mongod
from msgspec.structs import replace
from pymongo.collection import Collection as PymongoCollection

from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange, Record, RunEnd, RunStart, changes_of
from archec.catalogue.model import TEXTS, Changes, DataSet, Note, Obi, Position, Refipo, Run, Visit, Visited
from archec.catalogue.mongo import SCHEMA_VERSION, MongoCatalogue
from archec.errors import CatalogueError, CatalogueGone
from archec.history import History


@pytest.mark.slow
def test_acknowledged_lots_survive_kill_9_of_the_server(own_mongod: Mongod) -> None:
    """Thrice: lots are written until the server is killed; what was acknowledged is there again."""
    acknowledged = 0
    MongoCatalogue(own_mongod.url("kill"), create=True).close()

    def write_on(catalogue: Catalogue, until: int, then: threading.Event) -> None:
        nonlocal acknowledged
        while True:
            number = acknowledged + 1
            catalogue.write(lot(number, *[tobi(f"{number}-{i}") for i in range(300)], mentioned=[str(number)]))
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
        assert "became unavailable" in caught.value.message
        assert f"127.0.0.1:{own_mongod.port}" in caught.value.message
        with pytest.raises(CatalogueGone):
            list(catalogue.scan())
        catalogue.close()
        own_mongod.start()
        catalogue = MongoCatalogue(own_mongod.url("kill"))
        assert catalogue.position() in (lot(n).position for n in (acknowledged, acknowledged + 1))
        for number in range(1, acknowledged + 1):
            assert len(catalogue.obis("tobi", [f"{number}-{i}" for i in range(300)])) == 300
            assert str(number) in catalogue.obis("fobi", [str(number)])
        catalogue.close()


@pytest.mark.slow
def test_a_lot_cut_off_by_the_server_is_finished_by_writing_it_again(own_mongod: Mongod, tmp_path: Path) -> None:
    changes = lot(1, *[tobi(f"{i:05d}", 1, 2) for i in range(8000)], mentioned=["u"], runs=[Run(1)])
    catalogue = MongoCatalogue(own_mongod.url("cut"), create=True)
    watch: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(own_mongod.url("cut"))

    def kill_in_the_middle() -> None:
        while watch.cut.versions.estimated_document_count() == 0:
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


def test_a_server_that_refuses_the_user_is_no_damage(own_mongod: Mongod, tmp_path: Path) -> None:
    config = make(tmp_path / "a", {"database": own_mongod.url("refused")})
    assert archec_inline(config, "rebuild").code == 0
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(own_mongod.url("refused"))
    roles, durable = [{"role": "read", "db": "refused"}], {"w": 1, "j": True}
    client.admin.command("createUser", "reader", pwd="secret", roles=roles, writeConcern=durable)
    client.close()
    own_mongod.kill()
    own_mongod.start("--auth")
    url = own_mongod.url("refused").replace("=1000", "=20000")  # a busy machine may take seconds
    reader = url.replace("://", "://reader:secret@") + "&authSource=admin"
    for given, command, code, hint in (
        (reader, "check", 0, ""),
        (reader, "rebuild", 1, "needs the role readWrite"),
        (url, "check", 1, "needs the role readWrite"),
        (url, "status", 1, "needs the role readWrite"),
        (reader.replace("secret", "wrong"), "check", 1, "check user and password"),
        (reader.replace("secret", "wrong"), "verify", 1, "check user and password"),
    ):
        done = archec_inline(config, command, env={"ARCHEC_DATABASE": given})
        assert (done.code, hint in done.err, "to execute" in done.err) == (code, True, False), (command, done)
        assert "secret" not in done.err
        assert "wrong" not in done.err.replace("0 wrong", "")


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
    catalogue.write(lot(1, tobi("a", 2, 1, lost=True), fobi("b", 3), mentioned=["u"]))
    document = raw.mi.find_one({"_id": "a"})
    assert list(document["h"].items()) == [("1", state("a@1")), ("2", None)]
    assert raw.mo.find_one({"_id": "u"}) == {"_id": "u", "h": {}, "state": None, "due": 0, "stamp": 0}
    assert (document["lost"], document["state"], document["handle"]) == (2, None, "A")
    assert [ref["url"] for ref in raw.refs.find({"obi": "a"}).sort("url")] == ["http://h/1.pdf", "http://h/all"]
    held = raw.versions.find_one({"sha256": state("a@1")})
    text = {"md5": checksum("a@1"), "text": checksum("text a@1"), "size": 100}
    assert held == {**held, "obi": "a", "kind": "tobi", "first": 1, **text}
    assert raw.visits.find_one({"_id": "b"})["outcome"] == "new"


def test_indexes(catalogue: MongoCatalogue, raw: Any) -> None:
    """A version is found by each of its checksums; every order that is read is that of an index."""
    catalogue.write(lot(1, tobi("a"), fobi("b", 1)))
    for _ in range(2):
        keys = {
            name: {tuple(field for field, _ in index["key"]) for index in raw[name].index_information().values()}
            for name in ("mi", "mo", "entries", "versions", "refs")
        }
        both = {("_id",), ("stamp", "_id"), ("lost", "_id")}
        assert keys == {
            "mi": both,
            "mo": both | {("due", "_id")},
            "entries": {("_id",), ("obi", "kind", "tist"), ("kind", "tist", "obi"), ("back", "tist", "obi"),
                        ("kind", "note.run", "tist", "obi")},
            "versions": {
                ("_id",), ("obi", "kind", "sha256"), ("sha256",), ("md5",), ("kind", "text", "first", "obi"),
            },
            "refs": {("_id",), ("url", "obi")},
        }  # fmt: skip
        catalogue.clear()
    for where in ({"sha256": state("a@100")}, {"md5": checksum("a@100")}, {"kind": "tobi", "text": checksum("x")}):
        plan = raw.versions.find(where).explain()["queryPlanner"]["winningPlan"]
        assert plan["inputStage"]["stage"] == "IXSCAN", where


def test_pages_read_no_more_than_they_give(catalogue: MongoCatalogue, raw: Any) -> None:
    catalogue.write(lot(1, *[tobi(f"{i:04d}") for i in range(2000)], mentioned=[f"{i:04d}" for i in range(2000)]))
    for name, where, order in [
        ("mi", {"_id": {"$gt": "1800"}}, ["_id"]),
        ("mi", {"stamp": 1, "_id": {"$gt": "1800"}}, ["stamp", "_id"]),
        ("mo", {"due": 0, "_id": {"$gt": "1800"}}, ["due", "_id"]),
        ("mo", {"stamp": {"$gt": -1}}, ["stamp", "_id"]),
        ("entries", {"kind": "tobi", "tist": 100, "obi": {"$gt": "1800"}}, ["tist", "obi"]),
        ("entries", {"kind": "tobi", "note.run": 100, "tist": {"$gt": 0}}, ["tist", "obi"]),
        ("versions", {"kind": "tobi", "text": {"$gt": "8"}, "first": {"$gt": -1}}, ["text", "first", "obi"]),
        ("refs", {"url": "http://h/all"}, ["obi"]),
    ]:
        cursor = raw[name].find(where).sort([(field, 1) for field in order]).limit(10)
        stats = cursor.explain()["executionStats"]
        assert stats["totalKeysExamined"] <= 11, (name, where)
        assert stats["totalDocsExamined"] <= 10, (name, where)


def test_many_are_read_by_one_request(catalogue: MongoCatalogue, raw: Any) -> None:
    obis = [f"{i:04d}" for i in range(300)]
    catalogue.write(lot(1, *[tobi(obi) for obi in obis]))
    raw.command("profile", 2)
    assert len(catalogue.obis("tobi", obis)) == 300
    assert len(catalogue.naming(["http://h/100.pdf", "http://h/all", *obis], 300)) == 2
    raw.command("profile", 0)
    asked = [(one["op"], one["ns"].partition(".")[2]) for one in raw["system.profile"].find({"op": {"$ne": "command"}})]
    assert asked == [("query", name) for name in ("mi", "entries", "versions", "claims", "refs")]


def test_a_document_beyond_16_mb(catalogue: MongoCatalogue) -> None:
    huge = replace(tobi("huge", 1), notes={1: Note(1, "new", reason="x" * 17_000_000)})
    with pytest.raises(CatalogueError, match="16 MB") as caught:
        catalogue.write(lot(1, tobi("a"), huge))
    assert "huge" in caught.value.message
    assert len(caught.value.message) < 600
    assert catalogue.position() == Position()


def test_no_document_grows_with_files_and_versions(catalogue: MongoCatalogue, raw: Any) -> None:
    """An obi with 1,000 File-URLs and 100 versions: a version holds its own references, and nothing holds all."""
    refs = tuple(Refipo(f"http://h/{'path/' * 10}{n}.pdf") for n in range(1000))
    texts = {tist: f"version {tist}" for tist in range(1, 101)}
    versions = {state(text): version(text, 10**5, "ReDIF-Paper 1.0", "T", refs) for text in texts.values()}
    notes = {tist: Note(tist, "changed", reason="RePEc/aaa/x.rdf") for tist in texts}
    history = History.of({tist: state(text) for tist, text in texts.items()})
    catalogue.write(lot(1, Obi("big", "tobi", history, versions, notes, "BIG", stamp=1)))
    assert raw.refs.count_documents({"obi": "big"}) == 1000
    assert raw.versions.count_documents({"obi": "big"}) == raw.entries.count_documents({"obi": "big"}) == 100
    for name, most in (("mi", 10_000), ("entries", 500), ("versions", 250_000), ("refs", 500)):
        sizes = [len(bson.encode(document)) for document in raw[name].find()]
        assert max(sizes) < most, name


class CutOff(Exception):
    """The server is gone."""


def cut_at(step: int, halfway: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets ``step`` bulk writes through; of the next one nothing, or ``halfway`` each second write."""
    write_all, left = PymongoCollection.bulk_write, step

    def bulk_write(collection: Any, requests: Sequence[Any], **options: Any) -> object:
        nonlocal left
        if left == 0:
            if halfway:
                write_all(collection, requests[::2], **options)
            raise CutOff
        left -= 1
        return write_all(collection, requests, **options)

    monkeypatch.setattr(PymongoCollection, "bulk_write", bulk_write)


def before_and_after() -> tuple[Changes, Changes]:
    """Two lots; the second adds to, takes from and changes obis of the first."""
    first = lot(
        1, tobi("a", 1, 2, 3), tobi("b", 1), tobi("c", 1, lost=True), fobi("u", 1, 2), fobi("v"), mentioned=["w"],
        runs=[Run(1)], data_sets=[DataSet(1, 1)],
    )  # fmt: skip
    a, b = tobi("a", 2, 4, 5, stamp=7), tobi("b", 1, 6, stamp=7)
    # The same bytes, but other references: a version is replaced under its own key.
    again = {held: replace(one, refs=(Refipo("http://h/else"),)) for held, one in a.versions.items()}
    second = lot(
        2, replace(a, versions=again), b, tobi("d", 5, stamp=7), fobi("u", 2, 9, due=5, stamp=7), fobi("n", 1, stamp=7),
        visits=[Visited("v", Visit(60, "gone"), 70), Visited("new", Visit(60, "gone"), 70)], mentioned=["w", "x"],
        runs=[Run(1, state="done")], data_sets=[DataSet(2, 1, "", COVERAGES[2].key)], sets=[*HANDLES, *COVERAGES],
    )  # fmt: skip
    return first, second


def all_of(catalogue: Catalogue) -> list[object]:
    urls = ["http://h/all", "http://h/else", *(f"http://h/{n}.pdf" for n in range(10))]
    lists = [list(read(kind)) for kind in TEXTS for read in (catalogue.incidences, catalogue.lost, catalogue.texts)]
    return [list(dump(catalogue, everything=True)), catalogue.referring(urls, 9), lists, list(catalogue.due(100))]


@pytest.mark.slow
@pytest.mark.parametrize("halfway", [False, True])
def test_a_lot_cut_off_between_any_two_writes(
    catalogue: MongoCatalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halfway: bool
) -> None:
    first, second = before_and_after()
    whole = open_catalogue("sqlite:///c.sqlite", base=tmp_path, create=True)
    whole.write(first)
    whole.write(second)
    expected = all_of(whole)
    whole.close()
    cuts = 0
    while True:
        catalogue.clear()
        catalogue.write(first)
        with monkeypatch.context() as patch:
            cut_at(cuts, halfway, patch)
            try:
                catalogue.write(second)
                break
            except CutOff:
                cuts += 1
        assert catalogue.position() == first.position
        catalogue.write(second)
        assert all_of(catalogue) == expected, cuts
    assert cuts > 12
    assert all_of(catalogue) == expected


@pytest.mark.slow
def test_a_batch_is_folded_again_after_a_cut(
    catalogue: MongoCatalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What catching up makes of a batch that is partly there: it starts from the obis as they are by then."""
    held = [version(text, 9, "application/pdf") for text in ("one", "two", "three")]
    one, two, three = (content.sha256 for content in held)
    visit = Visit(9, "changed", 200)
    batches: list[list[Record]] = [
        [
            RunStart(1),
            ObiChange("tobi", "t", "T", {1: one}, (), held[0], {1: Note(1, "new")}),
            ObiChange("fobi", "u", "", {1: one}, (), held[0], {1: Note(1, "new")}, visit, 5),
        ],
        [
            ObiChange("tobi", "t", "t", {2: two, 4: one}, (), held[1], {2: Note(1, "new"), 4: Note(1, "restated")}),
            ObiChange("tobi", "t", "t", {1: three}, (4,), held[2], {1: Note(1, "changed")}),
            ObiChange("fobi", "u", "", {3: two}, (), held[1], {3: Note(1, "changed")}, visit, 7),
            ObiChange("fobi", "u", "", {5: None}, (), None, {5: Note(1, "lost")}, Visit(10, "gone"), 8),
            ObiChange("fobi", "v", visit=visit, due=9),
            RunEnd(1, "done", {"n": 1}),
        ],
    ]
    positions = [lot(n).position for n in (1, 2)]
    whole = open_catalogue("sqlite:///c.sqlite", base=tmp_path, create=True)
    for records, position in zip(batches, positions, strict=True):
        whole.write(changes_of(records, position, whole))
    expected = all_of(whole)
    whole.close()
    cuts = 0
    while True:
        catalogue.clear()
        catalogue.write(changes_of(batches[0], positions[0], catalogue))
        with monkeypatch.context() as patch:
            cut_at(cuts, cuts % 2 == 1, patch)
            try:
                catalogue.write(changes_of(batches[1], positions[1], catalogue))
                break
            except CutOff:
                cuts += 1
        catalogue.write(changes_of(batches[1], positions[1], catalogue))
        assert all_of(catalogue) == expected, cuts
    assert cuts > 6


def test_a_foreign_database_is_refused_and_left_alone(mongodb_url: str, raw: Any) -> None:
    raw.mi.insert_one({"_id": 1})
    for create in (True, False):
        with pytest.raises(CatalogueError, match="something else"):
            MongoCatalogue(mongodb_url, create=create)
    assert raw.list_collection_names() == ["mi"]


def test_another_schema_version_is_refused(catalogue: MongoCatalogue, mongodb_url: str, raw: Any) -> None:
    raw.state.update_one({"_id": "schema"}, {"$set": {"version": 99}})
    with pytest.raises(CatalogueError, match=f"version 99, this archec works with {SCHEMA_VERSION}"):
        MongoCatalogue(mongodb_url, create=True)


@pytest.mark.parametrize("h", [None, [], {"x": "y"}, {"1": "y", "z": None}])
def test_documents_of_someone_else(catalogue: MongoCatalogue, raw: Any, h: object) -> None:
    catalogue.write(lot(1))
    raw.mi.insert_one({"_id": "a", "h": h})
    raw.mo.insert_one({"_id": "a", "h": h})
    raw.entries.insert_one({"kind": "tobi", "tist": 1, "h": h})
    raw.versions.insert_one({"kind": "tobi", "text": "a", "first": 1, "h": h})
    raw.data_sets.insert_one({"_id": {"tist": 5, "run": 5}, "partial": h})
    raw.runs.insert_one({"_id": {"tist": 5}, "h": h})
    raw.state.update_one({"_id": "position"}, {"$unset": {"run": 1}})
    for read in (
        lambda: [list(catalogue.scan()), list(catalogue.all("tobi"))],
        lambda: list(catalogue.all("fobi")),
        lambda: list(catalogue.texts("tobi")),
        lambda: list(catalogue.incidences("tobi")),
        catalogue.data_sets,
        lambda: list(catalogue.runs()),
        lambda: catalogue.newest_runs(10, 1),
        catalogue.position,
    ):
        with pytest.raises(CatalogueError):
            read()


def test_the_operators_write_concern_cannot_weaken_the_promise(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    concerns: list[dict[str, Any]] = []
    write_all = PymongoCollection.bulk_write

    def bulk_write(collection: Any, *arguments: Any, **options: Any) -> object:
        concerns.append(collection.write_concern.document)
        return write_all(collection, *arguments, **options)

    monkeypatch.setattr(PymongoCollection, "bulk_write", bulk_write)
    mark = "&" if "?" in mongodb_url else "?"
    catalogue = MongoCatalogue(f"{mongodb_url}{mark}w=0&readPreference=secondary", create=True)
    catalogue.write(lot(1, tobi("a")))
    assert catalogue.obis("tobi", ["a"]) == {"a": tobi("a")}
    catalogue.close()
    assert concerns
    assert all(concern == {"w": "majority", "j": True, "wtimeout": 60_000} for concern in concerns)


# -- every kind of reading ----------------------------------------------------------------------------


READS: list[Callable[[Catalogue], object]] = [
    lambda c: list(dump(c, everything=True)),
    lambda c: list(dump(c, everything=False)),
    lambda c: list(c.scan("a")),
    lambda c: c.obis("tobi", ["a", *HOSTILE, "none"]),
    lambda c: c.obis("fobi", ["u", *HOSTILE, "none"]),
    lambda c: c.changed("tobi", 2, "a"),
    lambda c: c.changed("fobi", 0, "", 3),
    lambda c: list(c.due(8)),
    lambda c: [list(c.texts(kind)) for kind in TEXTS],
    lambda c: [list(c.incidences(kind)) for kind in TEXTS],
    lambda c: [list(c.lost(kind)) for kind in TEXTS],
    lambda c: list(c.tobi_files()),
    lambda c: c.file_states(["u", "v", "w", "x", *HOSTILE, "none"]),
    lambda c: c.referring(["http://h/all", "none"], 3),
    lambda c: c.keyed(COVERAGES[2].key),
    lambda c: c.keyed("none"),
]


def test_it_reads_as_sqlite_does(catalogue: MongoCatalogue, tmp_path: Path) -> None:
    obis = [tobi("a", 2, 1, stamp=3), tobi("b", 4, lost=True), *(tobi(obi, stamp=2) for obi in HOSTILE)]
    obis += [fobi("u", 1, due=9), fobi("v", due=8, stamp=4), *(fobi(obi, 3) for obi in HOSTILE), bare("fobi", "x")]
    changes = lot(
        1, *obis, visits=[Visited("v", Visit(60, "gone"), 70)], mentioned=["u", "w"], runs=[Run(2, "done"), Run(1)],
        data_sets=[DataSet(1, 2, "y", COVERAGES[2].key), DataSet(1, 1)], sets=[*HANDLES, *COVERAGES],
    )  # fmt: skip
    other = open_catalogue("sqlite:///c.sqlite", base=tmp_path, create=True)
    for engine in (catalogue, other):
        engine.write(changes)
    for read in READS:
        assert read(catalogue) == read(other)
    other.close()
