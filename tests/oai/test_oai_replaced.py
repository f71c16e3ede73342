"""The catalogue is rebuilt, restored from an older copy, or another one: what harvesters were told stays true."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oai_support import World, code, file, paper, texts

from archec.catalogue.model import Changes, Kind, Obi, Position, Run
from archec.catalogue.sqlite import SQLiteCatalogue
from archec.config import OaiConfig
from archec.errors import CatalogueError, CatalogueGone
from archec.oai.follow import Follower
from archec.oai.sets import SetRules
from archec.tist import iso

Obis = tuple[Obi, ...]


def put(catalogue: SQLiteCatalogue, position: Position, obis: Obis, source: str = "/data/current") -> None:
    """One batch of one run, as the archive's writer puts it."""
    catalogue.write(
        Changes(
            position,
            obis=[msgspec.structs.replace(obi, stamp=position.stamp) for obi in obis],
            runs=[Run(position.run, state="done", data_set=position.run, source=source)],
        )
    )


class Replaced(World):
    """A world whose catalogue can be made again from lots, beside journals that it is told of."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, settings=OaiConfig(numOfRecords=4))
        self.runs: set[int] = set()
        self.complete = True
        self.lots: list[tuple[Position, Obis]] = []
        self._number = 0

    def follow(self) -> int:
        rules = SetRules(self.config.oai.sets, self.config.oai.collections)
        follower = Follower(
            self.catalogue, self.index, rules, has_run=lambda run: run in self.runs,
            is_complete=lambda: self.complete, chunk=2, clock=self.clock,
        )  # fmt: skip
        changed = sum(follower.steps())
        self.clock.pass_(70)
        return changed

    def run(self, *obis: Obi, source: str = "/data/current") -> None:
        """A whole run, and the index after it."""
        position = Position(int(self.clock()), 1, int(self.clock()))
        self.lots.append((position, obis))
        self.runs.add(position.run)
        put(self.catalogue, position, obis, source)  # type: ignore[arg-type]
        self.follow()

    def restore(self, runs: int, source: str = "/data/current") -> None:
        """The archive as it was after so many runs; later ones are forgotten, journals and all."""
        self.catalogue.close()
        self._number += 1
        name = f"c{self._number}"
        self.catalogue = SQLiteCatalogue(f"sqlite:///{name}", self.folder / f"{name}.sqlite", create=True)
        del self.lots[runs:]
        self.runs = {position.run for position, _ in self.lots}
        for position, obis in self.lots:
            put(self.catalogue, position, obis, source)
        self.use(self.config.oai)

    def headers(self, **arguments: str) -> dict[str, tuple[str, bool]]:
        """As :meth:`harvested`, of the index alone."""
        return self.harvested("ListIdentifiers", **arguments)

    def harvested(self, verb: str = "ListRecords", **arguments: str) -> dict[str, tuple[str, bool]]:
        """Identifier to datestamp and whether it is deleted."""
        found: dict[str, tuple[str, bool]] = {}
        for root in self.walk(verb, metadataPrefix="redif", **arguments):
            for header in root.iterfind(".//{*}header"):
                name = str(header.findtext("{*}identifier"))
                assert name not in found
                found[name] = str(header.findtext("{*}datestamp")), header.get("status") == "deleted"
        return found


@pytest.fixture
def replaced(memory_path: Path) -> Iterator[Replaced]:
    made = Replaced(memory_path / "w")
    made.run(*(paper(f"RePEc:aaa:s:{n}", 0) for n in range(5)), file("http://h.org/a", 0))
    made.run(paper("RePEc:aaa:s:1", 0, title="changed"), paper("RePEc:aaa:s:2", 0, lost=True))
    made.run(*(paper(f"RePEc:aaa:s:new{n}", 0) for n in range(3)), file("http://h.org/b", 0))
    yield made
    made.close()


def test_a_first_run_that_comes_to_know_its_date_later(memory_path: Path) -> None:
    """A tarball whose name has no date: the run is announced once more when its members have told it."""
    world = Replaced(memory_path / "w")
    tist = int(world.clock())
    for batch, data_set in ((1, 0), (2, 999_999)):
        position = Position(tist, batch, tist)
        world.runs.add(tist)
        run = Run(tist, data_set=data_set, form="tarball", source="/data/x.tar")
        world.catalogue.write(Changes(position, runs=[run]))
        world.follow()
    world.run(paper("RePEc:aaa:s:1", 0))
    assert set(world.harvested()) == {"oai:" + world.repository.domain + ":RePEc:aaa:s:1"}
    world.close()


def test_a_rebuild_changes_no_datestamp_and_ends_no_token(replaced: Replaced) -> None:
    before = replaced.harvested()
    token = str(replaced.ask("ListRecords", metadataPrefix="redif").findtext(".//{*}resumptionToken"))
    page = texts(replaced.ask("ListRecords", resumptionToken=token), ".//o:datestamp")
    replaced.catalogue.clear()
    assert replaced.follow() == 0
    for position, obis in replaced.lots:
        assert replaced.headers() == before
        put(replaced.catalogue, position, obis)  # type: ignore[arg-type]
        assert replaced.follow() == 0
    assert replaced.harvested() == before
    assert texts(replaced.ask("ListRecords", resumptionToken=token), ".//o:datestamp") == page
    assert not replaced.index.state().whole


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_no_older_state_is_told_while_the_catalogue_is_rebuilt(
    replaced: Replaced, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Its datestamp would be that of the newest, which no harvester would then come back for."""
    real = replaced.catalogue.obis

    def rebuild(kind: Kind, ids: Collection[str], *, visits: bool = True) -> dict[str, Obi]:
        monkeypatch.undo()
        replaced.catalogue.clear()
        put(replaced.catalogue, *replaced.lots[0])  # type: ignore[arg-type]
        return real(kind, ids, visits=visits)

    monkeypatch.setattr(replaced.catalogue, "obis", rebuild)
    if when == "before":
        rebuild("tobi", ())
    one = {"identifier": f"oai:{replaced.repository.domain}:RePEc:aaa:s:1", "metadataPrefix": "oai_dc"}
    with pytest.raises(CatalogueGone, match="is behind the OAI index"):
        replaced.ask("GetRecord", **one)
    for position, obis in replaced.lots[1:]:
        put(replaced.catalogue, position, obis)  # type: ignore[arg-type]
    assert "changed" in texts(replaced.ask("GetRecord", **one), ".//dc:title")


def test_an_older_copy_is_restored(replaced: Replaced, caplog: pytest.LogCaptureFixture) -> None:
    """What the archive no longer knows is deleted for harvesters, what is otherwise again comes again."""
    before, since = replaced.harvested(), iso(int(replaced.clock()))
    replaced.restore(1)
    with caplog.at_level(logging.WARNING, "archec.oai"):
        assert replaced.follow() == 6
    assert "the archive has lost run" in caplog.text
    after = replaced.harvested()
    assert before.keys() == after.keys()
    new = {name for name in after if ":new" in name}
    gone = {name for name, (_, deleted) in after.items() if deleted}
    assert new < gone
    assert len(gone) == 4  # a file too
    changed = replaced.harvested(from_=since)
    assert changed == {name: after[name] for name in after if after[name] != before[name]}
    assert all(after[name][0] >= before[name][0] for name in after)
    # Nothing more to do, now and after a restart; and life goes on.
    assert replaced.follow() == replaced.follow() == 0
    replaced.run(paper("RePEc:aaa:s:new1", 0))
    assert [deleted for name, (_, deleted) in replaced.harvested().items() if name.endswith("new1")] == [False]


def test_a_restored_archive_that_went_on(replaced: Replaced) -> None:
    replaced.restore(2)
    replaced.clock.pass_(1000)
    replaced.run(paper("RePEc:aaa:s:other", 0))
    found = replaced.harvested()
    assert {name.rpartition(":")[2] for name, (_, deleted) in found.items() if deleted and ":aaa:" in name} == {
        "2", "new0", "new1", "new2"
    }  # fmt: skip
    assert code(replaced.ask("ListRecords", metadataPrefix="oai_dc")) == ""


def test_nothing_is_deleted_while_the_catalogue_may_be_incomplete(replaced: Replaced) -> None:
    before = replaced.harvested()
    replaced.restore(2)
    replaced.complete = False
    replaced.follow()
    assert replaced.index.state().whole
    assert sum(deleted for _, deleted in replaced.headers().values()) == sum(deleted for _, deleted in before.values())
    replaced.complete = True
    replaced.follow()
    assert not replaced.index.state().whole
    assert sum(deleted for _, deleted in replaced.headers().values()) == 5


def test_a_rebuild_that_begins_during_the_comparison(replaced: Replaced, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced.restore(2)
    replaced.runs.add(replaced.index.state().seen.run)
    real = replaced.catalogue.obis

    def obis(kind: Kind, ids: Collection[str]) -> dict[str, Obi]:
        replaced.catalogue.clear()
        return real(kind, ids)

    replaced.runs.discard(max(replaced.runs))
    monkeypatch.setattr(replaced.catalogue, "obis", obis)
    deleted = sum(gone for _, gone in replaced.headers().values())
    replaced.follow()
    assert sum(gone for _, gone in replaced.headers().values()) == deleted
    assert replaced.index.state().whole


def test_the_catalogue_of_another_archive_is_refused(replaced: Replaced) -> None:
    before, state = replaced.headers(), replaced.index.state()
    replaced.restore(3, source="/elsewhere")
    with pytest.raises(CatalogueError, match="another archive") as found:
        replaced.follow()
    assert "oai.index" in found.value.hint
    with pytest.raises(CatalogueError, match="another archive"):
        replaced.follower.check()
    assert (replaced.headers(), replaced.index.state()) == (before, state)


def test_an_archive_without_runs_is_refused(replaced: Replaced) -> None:
    before = replaced.headers()
    replaced.restore(0)
    with pytest.raises(CatalogueError, match="another archive"):
        replaced.follow()
    assert replaced.headers() == before


_runs = st.lists(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=4), min_size=1, max_size=5)


@settings(max_examples=40)
@given(_runs, st.integers(1, 4), _runs)
def test_a_faithful_harvester_survives_any_restoration(
    memory_path: Path, first: list[list[tuple[int, bool]]], kept: int, later: list[list[tuple[int, bool]]]
) -> None:
    """Whoever harvests by datestamps alone ends with what a new harvester gets, but for nothing it was told."""
    import tempfile

    world = Replaced(Path(tempfile.mkdtemp(dir=memory_path)))
    mirror: dict[str, tuple[str, bool]] = {}
    since = ""
    version = 0
    try:
        for part in (first, None, later):
            if part is None:
                world.restore(min(kept, len(world.lots)))
                world.follow()
            for run in part or []:
                version += 1
                states = dict(run).items()
                world.run(*(paper(f"RePEc:aaa:s:{n}", 0, title=f"v{version}", lost=lost) for n, lost in states))
            found = world.headers(**({"from_": since} if since else {}))
            for name, told in found.items():
                assert told[0] >= mirror.get(name, ("", False))[0]
            mirror |= found
            since = iso(int(world.clock()))
            world.clock.pass_(5)
        assert mirror == world.headers()
    finally:
        world.close()
