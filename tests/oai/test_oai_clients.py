"""Real harvesters and a real browser on real archives: the demo's, replays of made and of real data sets."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from oai_clients import CLIENTS, Client, Crowd, compared, needs
from oai_http import Running, served
from oai_support import World, texts

from archec.archive.opening import Archive
from archec.config import Config, OaiConfig, load
from archec.demo.show import make_archive, play
from archec.gather.run import Options, gather
from archec.oai.follow import Follower
from archec.oai.index_sqlite import SQLiteIndex
from archec.oai.items import ItemReader
from archec.oai.repository import make_repository
from archec.oai.sets import SetRules
from archec.progress import Meter
from archec.store.layout import open_layout
from archec.tist import iso

HISTORY = Path(os.environ.get("ARCHEC_CORPUS", Path(__file__).parents[3] / "shared" / "corpus")) / "history"


class RealArchive(World):
    """A real archive, gathered by real runs, as a repository."""

    def __init__(self, config: Config, settings: OaiConfig) -> None:
        from archec.catalogue.engines import open_catalogue

        folder = config.base / "data"
        super().__init__(
            folder / "w", settings=settings, catalogue=open_catalogue(config.database, base=config.base),
            index=SQLiteIndex(folder / "oai.sqlite"),
        )  # fmt: skip
        self.layout = open_layout(config.store_path)
        reader = ItemReader(Archive(self.config, self.layout, self.catalogue))
        self.repository = make_repository(self.config, self.index, reader, environ={})
        rules = SetRules(settings.sets, settings.collections)
        self.follower = Follower(self.catalogue, self.index, rules, clock=self.clock)
        import time

        self.clock.now = time.time() + 10
        self.show()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealArchive]:
    """The archive of ``archec demo``."""
    config = make_archive(tmp_path_factory.mktemp("oai") / "demo")
    for _ in play(config, Meter()):
        pass
    made = RealArchive(load(config.base / "config.yaml", environ={}), OaiConfig(numOfRecords=7))
    yield made
    made.close()


@pytest.fixture(scope="module")
def site(demo: RealArchive) -> Iterator[Running]:
    with served(demo) as made:
        yield made


def test_the_demo(demo: RealArchive) -> None:
    """Every answer about a real archive is valid, in every format; files and losses are there."""
    for prefix in ("oai_dc", "redif", "amf"):
        roots = list(demo.walk("ListRecords", metadataPrefix=prefix))
        found = [one for root in roots for one in texts(root, ".//o:header/o:identifier")]
        assert len(found) == len(set(found)) == {"oai_dc": 30, "redif": 30, "amf": 15}[prefix]
    (clocks,) = [one for one in demo.identifiers(set="dom") if "fobi" in one][:1]
    assert clocks
    deleted = [
        one
        for root in demo.walk("ListIdentifiers", metadataPrefix="oai_dc")
        for one in root.iterfind(".//{*}header[@status='deleted']")
    ]
    assert len(deleted) == 1
    back = texts(demo.ask("ListRecords", metadataPrefix="redif", set="type:paper"), ".//r:template")
    assert all(one.startswith("Template-Type: ReDIF-Paper") for one in back)


def templates(*handles: str, note: str = "") -> str:
    """A ReDIF file of these papers."""
    return "\n".join(
        f"Template-Type: ReDIF-Paper 1.0\nTitle: On {one} {note}\nAuthor-Name: A. Uthor\nHandle: RePEc:{one}\n"
        for one in handles
    )


def papers(series: str, *numbers: int) -> list[str]:
    return [f"{series}:{n}" for n in numbers]


DATA_SETS: dict[str, dict[str, str]] = {
    "2010-03-01": {
        "aaa/wpaper/a.rdf": templates(*papers("aaa:wpaper", *range(1, 13))),
        "bbb/journl/b.rdf": templates(*papers("bbb:journl", *range(1, 7))),
    },
    "2012-03-01": {
        "aaa/wpaper/a.rdf": templates(*papers("aaa:wpaper", 1, 2, 3, *range(6, 13)))
        + templates(*papers("aaa:wpaper", *range(13, 17)), note="again"),
        "bbb/journl/b.rdf": templates(*papers("bbb:journl", *range(1, 7))),
    },
    "2014-03-01": {
        "aaa/wpaper/a.rdf": templates(*papers("aaa:wpaper", *range(1, 17))),
        "bbb/journl/b.rdf": templates(*papers("bbb:journl", *range(1, 7)), note="revised"),
    },
    "2016-03-01": {
        "aaa/wpaper/a.rdf": templates(*papers("aaa:wpaper", *range(3, 17))),
        "bbb/journl/b.rdf": templates(*papers("bbb:journl", 1, 2, 3, 4), note="revised"),
        "ccc/wpaper/c.rdf": templates(*papers("ccc:wpaper", *range(1, 5))),
    },
}
ORDERS = {"in order": (0, 1, 2, 3), "backwards": (3, 2, 1, 0), "mixed": (2, 0, 3, 1)}


def tarballs(folder: Path) -> list[Path]:
    """The data sets as tarballs, oldest first."""
    made = []
    for date, members in DATA_SETS.items():
        made.append(folder / f"RePEc-{date}.tar.gz")
        with tarfile.open(made[-1], "w:gz") as tar:
            for name, text in members.items():
                member = tarfile.TarInfo(f"RePEc/{name}")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
    return made


def replay(folder: Path, files: Iterable[Path], client: Client) -> tuple[RealArchive, dict[str, bool]]:
    """Replays data sets one by one, each followed by an incremental harvest; what that harvester has."""
    config = make_archive(folder)
    archive: RealArchive | None = None
    mirror: dict[str, bool] = {}
    since: dict[str, str] = {}
    for file in files:
        gather(config, Options(file=file, fetch=False, accept=frozenset(["all"])), Meter())
        archive = archive or RealArchive(config, OaiConfig())
        sum(archive.follower.steps())
        archive.clock.pass_(60)
        mirror.update(compared(archive, client, **since))
        since = {"from_": iso(int(archive.clock()))}
        archive.clock.pass_(60)
    assert archive is not None
    return archive, mirror


def looked_at(archive: RealArchive, mirror: dict[str, bool], client: Client, sets: Sequence[str]) -> None:
    """The mirror is what there is; sets and both ends of time make parts that add up."""
    whole = compared(archive, client)
    assert mirror == dict(whole)
    counts = archive.catalogue.counts()
    assert len(whole) == len(dict(whole)) == counts.tobis_held + counts.tobis_lost
    assert sum(deleted for _, deleted in whole) == counts.tobis_lost
    assert sorted(one for name in sets for one in compared(archive, client, set_=name)) == sorted(whole)
    stamps = sorted({one for root in archive.walk("ListIdentifiers", metadataPrefix="redif")
                     for one in texts(root, ".//o:datestamp")})  # fmt: skip
    middle = stamps[len(stamps) // 2]
    early, late = compared(archive, client, until=middle), compared(archive, client, from_=middle)
    both = compared(archive, client, from_=middle, until=middle)
    assert len(early) + len(late) - len(both) == len(whole)
    assert compared(archive, client, from_="2999-01-01") == []
    for prefix in ("redif", "amf"):
        assert dict(compared(archive, client, metadataPrefix=prefix)) == mirror


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("client", CLIENTS)
def test_the_demo_harvested(demo: RealArchive, client: Client) -> None:
    needs(client)
    found = compared(demo, client)
    assert (len(found), sum(deleted for _, deleted in found)) == (30, 1)
    assert len(compared(demo, client, set_="type:paper")) == 13
    assert len(compared(demo, client, set_="RePEc")) == 15
    assert len(compared(demo, client, metadataPrefix="redif", from_="2020-01-01")) == 30
    assert len(compared(demo, client, metadataPrefix="amf", until="2999-01-01")) == 15
    assert compared(demo, client, until="2001-01-01") == []


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("client", CLIENTS)
def test_harvests_across_503s(demo: Archive, client: Client) -> None:
    needs(client)
    usual = demo.config.oai
    demo.use(dataclasses.replace(usual, retry_after=1, max_lists=1))
    crowd = Crowd()
    assert len(compared(demo, client, crowd.around)) == 30
    assert len(compared(demo, client, crowd.around, set_="RePEc", from_="2020-01-01")) == 15
    assert crowd.refused >= 3
    demo.use(usual)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "order", ["mixed", *(pytest.param(name, marks=pytest.mark.slow) for name in ("in order", "backwards"))]
)
def test_replays_in_any_order(order: str, client: Client, tmp_path: Path) -> None:
    needs(client)
    files = tarballs(tmp_path)
    archive, mirror = replay(tmp_path / "a", (files[n] for n in ORDERS[order]), client)
    assert len(mirror) == 26
    assert {name.split(":", 3)[3] for name, deleted in mirror.items() if deleted} == {
        "aaa:wpaper:1", "aaa:wpaper:2", "bbb:journl:5", "bbb:journl:6"
    }  # fmt: skip
    looked_at(archive, mirror, client, ("archive:aaa", "archive:bbb", "archive:ccc"))
    archive.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(not HISTORY.is_dir(), reason="the real data sets are not here; set ARCHEC_CORPUS")
@pytest.mark.parametrize("client", CLIENTS)
def test_replays_of_real_data_sets(client: Client, tmp_path: Path) -> None:
    """Data sets of ten years, replayed out of order: each shows up when it was replayed."""
    needs(client)
    files = sorted(HISTORY.glob("*.tar.gz"), key=lambda path: path.name[::-1])
    archive, mirror = replay(tmp_path / "a", files, client)
    assert len(mirror) > 700
    sets = {name.partition(":")[2].split(":")[0] for root in archive.walk("ListSets")
            for name in texts(root, ".//o:setSpec") if name.startswith("archive:")}  # fmt: skip
    looked_at(archive, mirror, client, [f"archive:{name}" for name in sorted(sets)])
    archive.close()


@pytest.mark.slow
def test_the_public_validator(demo: RealArchive) -> None:
    """The validator that registers repositories at openarchives.org (HTTP::OAIPMH::Validator)."""
    folder = Path(os.environ.get("ARCHEC_TEST_OAI_VALIDATOR", "/nowhere"))
    command = ["perl", f"-I{folder / 'lib'}", str(folder / "oaipmh-validator.pl")]
    if not (folder / "lib").is_dir() or shutil.which("perl") is None:
        pytest.skip("the validator is not here; set ARCHEC_TEST_OAI_VALIDATOR to its folder")
    demo.use(dataclasses.replace(demo.config.oai, numOfRecords=7))
    with served(demo) as site:
        done = subprocess.run([*command, site.oai], capture_output=True, text=True, check=False, timeout=120)
    assert "is COMPLIANT" in done.stdout, done.stdout + done.stderr
    assert "FAIL" not in done.stdout


def test_a_page_in_a_real_browser(site: Running, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no chromium is installed")
    options = "--headless --no-sandbox --disable-gpu --no-proxy-server --virtual-time-budget=5000 --dump-dom"
    command = [browser, *options.split(), f"--user-data-dir={tmp_path}"]
    url = f"{site.oai}?verb=ListRecords&metadataPrefix=oai_dc"
    done = subprocess.run([*command, url], capture_output=True, text=True, check=False, timeout=120)
    if "<html" not in done.stdout:
        pytest.skip(f"this browser does not run or has no XSLT any more: {done.stderr[-200:]}")
    assert "Demo University Working Papers" in done.stdout
    assert 'rel="next"' in done.stdout
    assert "verb=ListSets" in done.stdout
