"""The same archive on MongoDB: equal dumps, rebuilds, and a server that goes away in mid-run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from gather_support import archec_inline, make
from mongod import Mongod

from archec.archive.commit import Committer
from archec.archive.opening import rebuild
from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.catalogue.mongo import MongoCatalogue
from archec.config import Config
from archec.demo.papers import write_data_set
from archec.demo.site import DemoSite
from archec.errors import CatalogueGone, Exit
from archec.gather.run import Options, gather
from archec.progress import Meter
from archec.store.layout import open_layout

HISTORY = Path(__file__).parents[3] / "shared" / "corpus" / "history"


def dumped(url: str, base: Path, *, everything: bool = False) -> list[str]:
    catalogue = open_catalogue(url, base=base)
    try:
        return list(dump(catalogue, everything=everything))
    finally:
        catalogue.close()


def played(config: Config) -> None:
    """Three gatherings of the demo's site."""
    with DemoSite() as site:
        for stage in (1, 2, 3):
            site.stage = stage
            write_data_set(config.data_path, stage, site.base_url)
            assert gather(config, Options(), Meter()).state == "done"


def test_a_mongodb_archive_rebuilds_to_the_same_on_either_engine(tmp_path: Path, mongodb_url: str) -> None:
    config = make(tmp_path / "a", {"database": mongodb_url})
    played(config)
    before = dumped(mongodb_url, config.base, everything=True)
    assert any('"collection":"mo"' in line for line in before)
    for url in (mongodb_url, "sqlite:///fresh.sqlite"):
        catalogue = open_catalogue(url, base=config.base, create=True)
        try:
            rebuild(open_layout(config.store_path), catalogue)
        finally:
            catalogue.close()
        assert dumped(url, config.base, everything=True) == before


@pytest.mark.slow
def test_real_tarballs_in_any_order_on_either_engine(tmp_path: Path, mongodb_url: str) -> None:
    if not HISTORY.is_dir():
        pytest.skip("the corpus of dated tarballs is not beside the project")
    tarballs = sorted(HISTORY.glob("*.tar.gz"))
    shuffled = random.Random(5).sample(tarballs, len(tarballs))
    mongodb = make(tmp_path / "m", {"database": mongodb_url})
    sqlite = make(tmp_path / "s")
    for config, order in ((mongodb, shuffled), (sqlite, tarballs)):
        for path in order:
            gather(config, Options(file=path, fetch=False, accept=frozenset({"all"})), Meter())
    assert dumped(mongodb.database, mongodb.base) == dumped(sqlite.database, sqlite.base)


def test_a_batch_that_is_partly_there_is_no_damage(
    tmp_path: Path, mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the next run completes it, check and verify exit with 0."""
    config, undisturbed = make(tmp_path / "a", {"database": mongodb_url}), make(tmp_path / "b")

    def gone(self: MongoCatalogue, visits: object) -> None:
        raise CatalogueGone("the connection was reset")

    for stage in (1, 2):
        for each in (config, undisturbed):
            write_data_set(each.data_path, stage, "http://127.0.0.9:9")
        with monkeypatch.context() as patch:
            patch.setattr(MongoCatalogue, "_put_visits", gone)
            with pytest.raises(CatalogueGone):
                gather(config, Options(fetch=False, as_of=1_000_000_000 + stage), Meter())
        for command in (("check",), ("check", "--quick"), ("verify",)):
            done = archec_inline(config, *command)
            assert done.code == 0, done
        assert b"not-compared: .: the catalogue is not compared: it is behind" in archec_inline(config, "check").out
        for each in (config, undisturbed):
            gather(each, Options(fetch=False, as_of=1_000_000_000 + stage), Meter())
        assert b"0 wrong, 0 fixed, 0 notes" in archec_inline(config, "check").out
        assert dumped(mongodb_url, config.base) == dumped(undisturbed.database, undisturbed.base)


@pytest.mark.slow
def test_a_server_that_goes_away_in_mid_run_costs_nothing(
    tmp_path: Path, mongod_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Mongod(mongod_binary, tmp_path / "db")
    server.start()
    try:
        config = make(tmp_path / "a", {"database": server.url("archec")})
        undisturbed = make(tmp_path / "b")
        for each in (config, undisturbed):
            write_data_set(each.data_path, 1, "http://127.0.0.9:9")
        committed = Committer.commit
        calls = 0

        def commit(self: Committer) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                server.kill()
            committed(self)

        monkeypatch.setattr(Committer, "commit", commit)
        with pytest.raises(CatalogueGone) as caught:
            gather(config, Options(fetch=False, as_of=1_000_000_000), Meter())
        assert caught.value.exit_code == Exit.OPERATOR_ERROR
        assert "127.0.0.1" in caught.value.message
        monkeypatch.undo()
        server.start()
        report = gather(config, Options(fetch=False, as_of=1_000_000_000), Meter())
        assert report.state == "done"
        gather(undisturbed, Options(fetch=False, as_of=1_000_000_000), Meter())
        assert dumped(config.database, config.base) == dumped(undisturbed.database, undisturbed.base)
    finally:
        server.kill()
