"""The index: one contract for both engines, following the catalogue, lists that stay closed."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mongod import Mongod
from msgspec.structs import replace
from oai_support import DOMAIN, NOON, World, code, file, paper, texts

from archec.config import OaiCollectionConfig, OaiConfig
from archec.errors import CatalogueError, CatalogueGone
from archec.ids import MAX_ID
from archec.oai.index import Index, IndexEntry, IndexRow, ListQuery, SortKey
from archec.oai.index_mongo import MongoIndex
from archec.oai.index_sqlite import SQLiteIndex
from archec.oai.repository import open_index
from archec.oai.sets import SetRules

BOTH = ("tobi", "fobi")


def test_a_mongodb_server_that_is_gone_is_noticed_within_seconds(mongod_binary: Path, tmp_path: Path) -> None:
    mongod = Mongod(mongod_binary, tmp_path / "data")
    mongod.start()
    try:
        with closing(MongoIndex(mongod.url("gone").partition("?")[0])) as made:
            mongod.kill()
            begun = time.monotonic()
            with pytest.raises(CatalogueGone, match="became unavailable"):
                made.state()
            assert time.monotonic() - begun < 15  # a run waits 30 s for another primary
    finally:
        mongod.kill()


@pytest.fixture(params=["sqlite", "mongodb"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    made: Index
    if request.param == "sqlite":
        made = SQLiteIndex(tmp_path / "oai.sqlite")
    else:
        made = MongoIndex(request.getfixturevalue("mongodb_url"))
    yield made
    made.close()


def entry(
    n: int, *, stamp: int = 5, kind: Any = "tobi", sets: tuple[str, ...] = (), deleted: bool = False
) -> IndexEntry:
    obi = f"x:{n:04d}" if kind == "tobi" else f"http://h/{n}"
    return IndexEntry(kind, f"x:{n:04d}", obi, stamp, stamp, deleted, sets)


def put(index: Index, *entries: IndexEntry, ready: bool = False, now: float = 0) -> int:
    return index.publish(entries, index.state()._replace(ready=ready), lambda: now)


def every(index: Index, size: int = 3, query: ListQuery = ListQuery(BOTH, "", 0, 10**12)) -> list[IndexRow]:  # noqa: B008
    found: list[IndexRow] = []
    after: SortKey | None = None
    while page := index.page(query, after, size):
        found += page
        after = page[-1].key
    return found


def test_contract(index: Index) -> None:
    assert index.earliest() is None
    assert every(index) == []
    assert (
        put(index, *(entry(n, sets=("a:b", "c")) for n in range(5)), *(entry(n, kind="fobi") for n in range(5, 9))) == 9
    )
    assert put(index, entry(0, sets=("a:b", "c"))) == 0
    assert index.earliest() == 5
    for size in (1, 2, 4, 100):
        rows = every(index, size)
        assert sorted(row.local for row in rows) == [f"x:{n:04d}" for n in range(9)]
        assert [row.key for row in rows] == sorted(
            (row.key for row in rows), key=lambda p: (p.stamp, len(p.tie), p.tie)
        )
    assert index.sets("", 10) == ["a", "a:b", "c"]
    assert index.sets("a", 1) == ["a:b"]
    assert index.count(ListQuery(BOTH, "", 0, 10)) == 9
    assert index.count(ListQuery(BOTH, "", 6, 10)) == index.count(ListQuery(BOTH, "", 0, 4)) == 0
    assert index.count(ListQuery(("tobi",), "a", 5, 5)) == index.count(ListQuery(BOTH, "c", 0, 99)) == 5
    assert index.count(ListQuery(BOTH, "zzz", 0, 99)) == 0
    found = index.find("x:0006")
    assert found is not None
    assert (found.kind, found.obi, found.deleted, found.sets) == ("fobi", "http://h/6", False, ())
    assert index.find("x:0099") is None
    state = index.state()._replace(archive="1352481230-\u00e4", whole=True, rules="r", ready=True)
    index.publish([], state, lambda: 0)
    assert index.state() == state


def test_changes_move_items_to_the_end(index: Index) -> None:
    put(index, *(entry(n) for n in range(4)))
    assert put(index, entry(1, stamp=6, deleted=True), ready=True, now=100) == 1
    rows = every(index)
    assert [row.key.stamp for row in rows] == [5, 5, 5, 102]
    assert rows[-1].deleted
    assert index.state().last == 102
    assert put(index, entry(2, stamp=7), ready=True, now=50) == 1  # the clock went back
    assert every(index)[-1].key.stamp == 102


def test_an_item_that_leaves_a_set_is_told_of_there(index: Index) -> None:
    put(index, entry(1, sets=("a:b", "c:d")))
    put(index, entry(1, stamp=6, sets=("a:e",)), ready=True, now=100)
    by_set = {name: every(index, query=ListQuery(BOTH, name, 0, 999)) for name in ("", "a", "a:b", "a:e", "c", "c:d")}
    assert {name: [row.left for row in rows] for name, rows in by_set.items()} == {
        "": [False], "a": [False], "a:b": [True], "a:e": [False], "c": [True], "c:d": [True]
    }  # fmt: skip
    assert {row.key.stamp for rows in by_set.values() for row in rows} == {102}
    put(index, entry(1, stamp=7, sets=("c:d",)), ready=True, now=200)
    assert [row.left for row in every(index, query=ListQuery(BOTH, "c:d", 0, 999))] == [False]
    assert [row.left for row in every(index, query=ListQuery(BOTH, "a:b", 0, 999))] == [True]


def test_no_chunk_is_dated_before_it_can_be_seen(index: Index) -> None:
    """The promise: when a second has begun, nothing appears with its stamp any more."""
    times = iter([100.0, 103.0, 103.0, 104.9])  # the first attempt takes 3 s

    put(index, entry(0))
    changed = index.publish([entry(1), entry(2)], index.state()._replace(ready=True), lambda: next(times))
    assert changed == 2
    assert {row.key.stamp for row in every(index)} == {5, 107}


def test_writing_that_never_comes_to_an_end_is_an_error(index: Index) -> None:
    ticks = iter(range(100, 100_000, 200))
    with pytest.raises(CatalogueError, match="takes more than 64 s"):
        index.publish([entry(1)], index.state()._replace(ready=True), lambda: next(ticks))


def test_hostile_names(index: Index) -> None:
    names = ["x:\0", "x:'; DROP TABLE item", "x:$set", "x:" + "y" * 3000, "x:\U0001f4dc"]
    put(index, *(IndexEntry("tobi", name, name, 5, 5, False, ("a:!00",)) for name in names))
    assert sorted(row.local for row in every(index)) == sorted(names)
    assert all(index.find(name) for name in names)


def test_a_chunk_of_the_longest_names(index: Index) -> None:
    names = [str(i).ljust(MAX_ID, "\N{CJK UNIFIED IDEOGRAPH-4E2D}") for i in range(400)]
    entries = [IndexEntry("tobi", name, name, 5, 5, False, ()) for name in names]
    assert (put(index, *entries), put(index, *entries)) == (400, 0)


def test_the_state_is_kept(tmp_path: Path) -> None:
    made = SQLiteIndex(tmp_path / "oai.sqlite")
    put(made, entry(1), ready=True, now=50)
    state = made.state()
    made.close()
    again = SQLiteIndex(tmp_path / "oai.sqlite")
    assert again.state() == state
    assert len(every(again)) == 1
    again.close()
    (tmp_path / "other.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(CatalogueError, match="not an SQLite database"):
        SQLiteIndex(tmp_path / "other.sqlite")
    with pytest.raises(CatalogueError, match="no directory"):
        open_index("sqlite:///x", tmp_path / "nowhere" / "oai.sqlite")


def test_a_catalogue_is_not_taken_for_an_index(world: World) -> None:
    with pytest.raises(CatalogueError, match="something else"):
        SQLiteIndex(world.folder / "c.sqlite")


# -- following ------------------------------------------------------------------------------------


def test_a_fresh_index_has_the_stamps_of_the_catalogue(world: World) -> None:
    world.write(paper("RePEc:aaa:s:1", 0))
    world.clock.pass_(100)
    world.write(paper("RePEc:aaa:s:2", 0), file("http://h.org/a", 0))
    world.clock.pass_(100)
    world.show()
    assert texts(world.ask("ListIdentifiers", metadataPrefix="oai_dc"), ".//o:datestamp") == [
        "2023-11-14T22:13:20Z", "2023-11-14T22:15:00Z", "2023-11-14T22:15:00Z"
    ]  # fmt: skip


def test_two_batches_of_one_second(world: World) -> None:
    world.write(paper("RePEc:aaa:s:5", 0))
    sum(world.follower.steps())
    world.write(paper("RePEc:aaa:s:1", 0), paper("RePEc:aaa:s:9", 0))
    world.show()
    assert [one[-1] for one in world.identifiers()] == ["5", "1", "9"]
    world.write(paper("RePEc:aaa:s:5", 0, title="changed twice in a second"))
    sum(world.follower.steps())
    world.write(paper("RePEc:aaa:s:5", 0, title="and again", lost=True))
    world.show()
    assert len(world.identifiers()) == 3


def test_files_that_never_were_held_are_no_items(world: World) -> None:
    held = file("http://h.org/a", 0)
    world.show(
        held, replace(held, id="http://h.org/b", history=type(held.history)(), versions={}, notes={})
    )
    assert len(world.identifiers()) == 1


def test_a_catalogue_that_is_being_rebuilt_changes_nothing(world: World) -> None:
    obis = [paper(f"RePEc:aaa:s:{n}", 0) for n in range(3)]
    for obi in obis:
        world.show(obi)
    before = world.identifiers(), world.index.state().seen
    world.catalogue.clear()
    assert sum(world.follower.steps()) == 0
    assert (world.identifiers(), world.index.state().seen) == before


def test_small_chunks_and_a_stop_in_between(tmp_path: Path) -> None:
    world = World(tmp_path / "w", chunk=2)
    world.write(*(paper(f"RePEc:aaa:s:{n}", 0) for n in range(7)), *(file(f"http://h.org/{n}", 0) for n in range(5)))
    for _ in range(20):
        steps = world.follower.steps()
        done = next(steps, None) is None
        steps.close()
        if done:
            break
        assert not world.index.state().ready
        next(world.follower.steps(), None)
    world.show()
    assert len(world.identifiers()) == 12
    world.close()


def test_collections(world: World) -> None:
    obis = (
        paper("RePEc:aaa:s:1", 0),
        paper("RePEc:bbb:s:1", 0),
        file("http://www.nber.org/a", 0),
        file("http://h.org/a", 0),
    )
    world.show(*obis)
    col = OaiCollectionConfig("a b", "A and B", ("aaa",), (), ("nber.org",))
    run = OaiCollectionConfig("run", "", (), ("bbb:s",), (), (1_200_000_005,))
    world.use(OaiConfig(collections=(col, run)))
    world.show()
    assert len(world.identifiers(set="col:a!20b")) == 2
    assert len(world.identifiers(set="col:run")) == 4
    names = dict(zip(*(texts(world.ask("ListSets"), f".//o:{tag}") for tag in ("setSpec", "setName")), strict=True))
    assert names["col:a!20b"] == "A and B"
    world.use(OaiConfig(collections=(replace(col, archives=()),)))
    world.show()
    root = world.ask("ListRecords", metadataPrefix="oai_dc", set="col:a!20b")
    gone = root.findall(".//{*}header[@status='deleted']")
    assert [one.findtext("{*}setSpec") for one in gone] == ["col:a!20b"]
    full = world.ask("GetRecord", identifier=f"oai:{DOMAIN}:RePEc:aaa:s:1", metadataPrefix="oai_dc")
    assert full.find(".//{*}header").get("status") is None  # type: ignore[union-attr]


def test_a_change_of_type_moves_an_item_between_sets(world: World) -> None:
    world.show(paper("RePEc:aaa:s:1", 0))
    world.show(paper("RePEc:aaa:s:1", 0, kind="ReDIF-Article", title="Now an article"))
    gone = world.ask("ListIdentifiers", metadataPrefix="oai_dc", set="type:paper")
    assert gone.find(".//{*}header").get("status") == "deleted"  # type: ignore[union-attr]
    assert texts(gone, ".//o:setSpec") == ["type:paper"]
    assert len(world.identifiers(set="type:article")) == 1
    assert (
        texts(world.ask("ListIdentifiers", metadataPrefix="oai_dc", set="type"), ".//o:setSpec")[-1] == "type:article"
    )


def test_rules_have_a_checksum() -> None:
    one, two = SetRules(("type",), ()), SetRules(("type", "dom"), ())
    assert one.checksum != two.checksum
    assert one.checksum == SetRules(("type",), ()).checksum
    assert one.checksum != SetRules(("type",), (OaiCollectionConfig("x"),)).checksum


# -- harvests while the archive's writer is active ------------------------------------------------

Move = tuple[str, int]
_moves = st.lists(
    st.tuples(st.sampled_from(["write", "lose", "file", "follow", "tick"]), st.integers(0, 12)), min_size=0, max_size=6
)


def move(world: World, moves: list[Move], version: Callable[[], int]) -> None:
    for what, n in moves:
        if what == "write":
            world.write(paper(f"RePEc:aaa:s{n % 3}:{n}", 0, title=f"version {version()}"))
        elif what == "lose":
            world.write(paper(f"RePEc:aaa:s{n % 3}:{n}", 0, title=f"version {version()}", lost=True))
        elif what == "file":
            world.write(file(f"http://h{n % 3}.org/{n}", 0, tist=1_200_000_000 + version()))
        elif what == "follow":
            sum(world.follower.steps())
        else:
            world.clock.pass_(n / 4)


def titles_and_stamps(
    world: World, stop: list[str], between: Callable[[], None], **arguments: str
) -> list[tuple[str, str, str]]:
    """What a harvest gives: identifier, datestamp, title (or "deleted"); stops where the list has run dry."""
    found: list[tuple[str, str, str]] = []
    given_ = {"metadataPrefix": "oai_dc", **arguments}
    for root in world.walk("ListRecords", between, **given_):
        if code(root):
            assert code(root) == "noRecordsMatch"
            break
        for record in root.iterfind(".//{*}record"):
            title = record.findtext(".//{http://purl.org/dc/elements/1.1/}title") or "deleted"
            identifier, stamp = record.findtext(".//{*}identifier"), record.findtext(".//{*}datestamp")
            found.append((str(identifier), str(stamp), title))
        stop.append(str(root.findtext("{*}responseDate")))
    return found


@pytest.mark.parametrize("examples", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_writer_at_work_neither_shifts_nor_doubles_nor_loses(memory_path: Path, examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.lists(_moves, min_size=2, max_size=8), st.lists(_moves, min_size=1, max_size=5), st.integers(1, 4))
    def a_writer_at_work(during: list[list[Move]], later: list[list[Move]], size: int) -> None:
        world = World(Path(tempfile.mkdtemp(dir=memory_path)), settings=OaiConfig(numOfRecords=size), chunk=3)
        versions = iter(range(10**6))
        try:
            first: list[Move] = [("write", n) for n in range(6)]
            move(world, [*first, ("file", 1), ("follow", 0), ("tick", 12)], lambda: next(versions))
            mirror: dict[str, str] = {}
            since = ""
            for part in (during, later, []):
                pending = iter(part)
                dates: list[str] = []
                arguments = {"from_": since} if since else {}
                found = titles_and_stamps(
                    world,
                    dates,
                    lambda pending=pending: move(world, next(pending, []), lambda: next(versions)),
                    **arguments,  # type: ignore[misc]
                )
                assert len({one[0] for one in found}) == len(found)  # nothing twice
                assert [one[1] for one in found] == sorted(one[1] for one in found)
                mirror.update((one[0], one[2]) for one in found)
                since = dates[0] if dates else since
                for rest in pending:
                    move(world, rest, lambda: next(versions))
                if part is later:
                    sum(world.follower.steps())
                    world.clock.pass_(70)
            whole = titles_and_stamps(world, [], lambda: None)
            assert mirror == {one[0]: one[2] for one in whole}
        finally:
            world.close()

    a_writer_at_work()


@pytest.mark.parametrize("engine", ["sqlite", "mongodb"])
def test_a_token_gives_the_same_page_again_in_another_process(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    made = MongoIndex(request.getfixturevalue("mongodb_url")) if engine == "mongodb" else None
    world = World(tmp_path / "w", settings=OaiConfig(numOfRecords=3), index=made)
    world.show(*(paper(f"RePEc:aaa:s:{n}", 0) for n in range(10)))
    first, second, *_ = world.walk("ListRecords", metadataPrefix="oai_dc")
    token = str(first.findtext(".//{*}resumptionToken"))
    world.use(world.config.oai)  # what a restart does: nothing is remembered
    again = world.ask("ListRecords", resumptionToken=token)
    assert texts(again, ".//o:identifier") == texts(second, ".//o:identifier")
    world.close()


def test_tokens_end(small: World) -> None:
    small.use(dataclasses.replace(small.config.oai, numOfRecords=3))
    token = str(small.ask("ListRecords", metadataPrefix="oai_dc").findtext(".//{*}resumptionToken"))
    assert code(small.ask("ListIdentifiers", resumptionToken=token)) == "badResumptionToken"
    for place in range(0, len(token), 7):
        forged = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert code(small.ask("ListRecords", resumptionToken=forged)) == "badResumptionToken"
    for forged in (token[:-4], token + "AAAA", token + "=", token * 100, " " + token):
        assert code(small.ask("ListRecords", resumptionToken=forged)) == "badResumptionToken"
    small.clock.pass_(86300)
    assert code(small.ask("ListRecords", resumptionToken=token)) == ""
    small.clock.pass_(200)
    assert code(small.ask("ListRecords", resumptionToken=token)) == "badResumptionToken"


def test_tokens_of_another_index_or_repository(small: World, tmp_path: Path) -> None:
    small.use(dataclasses.replace(small.config.oai, numOfRecords=3))
    token = str(small.ask("ListRecords", metadataPrefix="oai_dc").findtext(".//{*}resumptionToken"))
    other = World(tmp_path / "other", catalogue=small.catalogue, settings=OaiConfig(numOfRecords=3))
    other.clock.now = small.clock.now
    other.show()
    assert code(other.ask("ListRecords", resumptionToken=token)) == "badResumptionToken"
    other.index.close()
    small.use(dataclasses.replace(small.config.oai, repositoryIdentifier="elsewhere.example.org"))
    assert code(small.ask("ListRecords", resumptionToken=token)) == "badResumptionToken"


@pytest.mark.slow
def test_a_page_costs_the_same_at_any_depth(tmp_path: Path) -> None:
    index = SQLiteIndex(tmp_path / "oai.sqlite")
    most = 200_000
    for start in range(0, most, 10_000):
        put(index, *(entry(n, stamp=NOON + n // 500, sets=("a:b", "c:d")) for n in range(start, start + 10_000)))

    def cost(n: int) -> float:
        query, after = ListQuery(BOTH, "a", 0, 10**12), SortKey(NOON + n // 500, str(n))
        best = 1.0
        for _ in range(30):
            begun = time.process_time()
            assert len(index.page(query, after, 100)) == 100
            best = min(best, time.process_time() - begun)
        return best

    assert cost(most - 300) / cost(10) <= 1.2
    index.close()
