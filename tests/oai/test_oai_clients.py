"""Harvesters and browsers that are no Python packages, where they are installed; real data sets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from oai_http import Running, served
from oai_support import World, texts

from archec.config import Config, OaiConfig, load
from archec.demo.show import make_archive, play
from archec.gather.progress import Silent
from archec.gather.run import Options, gather
from archec.oai.follow import Follower
from archec.oai.index_sqlite import SQLiteIndex
from archec.oai.repository import make_repository
from archec.oai.sets import SetRules
from archec.oai.source import CatalogueSource
from archec.store.layout import open_layout

HISTORY = Path(os.environ.get("ARCHEC_CORPUS", Path(__file__).parents[3] / "shared" / "corpus")) / "history"

PERL = """
use HTTP::OAI;
my ($url, %arguments) = @ARGV;
my ($all, $deleted) = (0, 0);
my $client = HTTP::OAI::Harvester->new(baseURL => $url);
my $answer = $client->ListRecords(%arguments, onRecord => sub { $all++; $deleted++ if $_[0]->header->is_deleted; });
die $answer->message if $answer->is_error;
print "[$all, $deleted]";
"""
NODE = """
const { OaiPmh } = require('oai-pmh');
const [url, options] = [process.argv[1], JSON.parse(process.argv[2])];
(async () => {
  let all = 0, deleted = 0;
  for await (const record of new OaiPmh(url).listRecords(options)) {
    all += 1;
    if (record.header.$ && record.header.$.status === 'deleted') deleted += 1;
  }
  console.log(JSON.stringify([all, deleted]));
})().catch((error) => { console.error(error); process.exit(1); });
"""


class Counts(NamedTuple):
    """What a harvest gave: records, and how many of them were deleted."""

    all: int
    deleted: int


def perl(url: str, **arguments: str) -> Counts:
    given = [word for name, value in arguments.items() for word in (name.rstrip("_"), value)]
    done = subprocess.run(["perl", "-e", PERL, url, *given], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return Counts(*json.loads(done.stdout))


def node(url: str, **arguments: str) -> Counts:
    given = json.dumps({name.rstrip("_"): value for name, value in arguments.items()})
    done = subprocess.run(
        ["node", "-e", NODE, url, given],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=os.environ.get("ARCHEC_TEST_NODE"),
    )
    assert done.returncode == 0, done.stderr
    return Counts(*json.loads(done.stdout))


def works(command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return not subprocess.run(
        command, capture_output=True, check=False, cwd=os.environ.get("ARCHEC_TEST_NODE")
    ).returncode


class Archive(World):
    """A real archive, gathered by real runs, as a repository."""

    def __init__(self, config: Config, settings: OaiConfig) -> None:
        from archec.catalogue.open import open_catalogue

        folder = config.base / "data"
        super().__init__(
            folder / "w", settings=settings, catalogue=open_catalogue(config.database, base=config.base),
            index=SQLiteIndex(folder / "oai.sqlite"),
        )  # fmt: skip
        self.layout = open_layout(config.store_path)
        source = CatalogueSource(self.layout, self.catalogue)
        self.repository = make_repository(self.config, self.index, source, environ={})
        rules = SetRules(settings.sets, settings.collections)
        self.follower = Follower(self.catalogue, self.index, rules, clock=self.clock)
        import time

        self.clock.now = time.time() + 10
        self.show()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """The archive of ``archec demo``."""
    config = make_archive(tmp_path_factory.mktemp("oai") / "demo")
    for _ in play(config, Silent()):
        pass
    made = Archive(load(config.base / "config.yaml", environ={}), OaiConfig(numOfRecords=7))
    yield made
    made.close()


@pytest.fixture(scope="module")
def site(demo: Archive) -> Iterator[Running]:
    with served(demo) as made:
        yield made


def test_the_demo(demo: Archive) -> None:
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


@pytest.mark.slow
@pytest.mark.skipif(not HISTORY.is_dir(), reason="the real data sets are not here; set ARCHEC_CORPUS")
def test_dated_replays(tmp_path: Path) -> None:
    """Data sets of ten years, replayed out of order: each shows up when it was replayed, all stay valid."""
    config = make_archive(tmp_path / "a")
    archive: Archive | None = None
    mirror: dict[str, bool] = {}
    since = ""
    for name in sorted(HISTORY.glob("*.tar.gz"), key=lambda path: path.name[::-1]):
        gather(config, Options(file=name, fetch=False, accept=frozenset(["all"])), Silent())
        archive = archive or Archive(config, OaiConfig())
        archive.follower.catch_up()
        archive.clock.pass_(60)
        arguments = {"from_": since} if since else {}
        for root in archive.walk("ListRecords", metadataPrefix="redif", **arguments):
            since = (
                since if root.find(".//{*}request[@resumptionToken]") is not None else texts(root, "o:responseDate")[0]
            )
            for header in root.iterfind(".//{*}header"):
                mirror[str(header.findtext("{*}identifier"))] = header.get("status") == "deleted"
    assert archive is not None
    whole = {
        str(header.findtext("{*}identifier")): header.get("status") == "deleted"
        for root in archive.walk("ListIdentifiers", metadataPrefix="oai_dc")
        for header in root.iterfind(".//{*}header")
    }
    assert mirror == whole
    counts = archive.catalogue.counts()
    assert len(whole) == counts.tobis_held + counts.tobis_lost > 700
    assert sum(whole.values()) == counts.tobis_lost
    for prefix in ("oai_dc", "amf"):
        assert sum(
            len(texts(root, ".//o:header")) for root in archive.walk("ListRecords", metadataPrefix=prefix)
        ) == len(whole)
    archive.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harvest", "probe"),
    [
        (perl, ["perl", "-MHTTP::OAI", "-e", "1"]),
        (node, ["node", "-e", "require('oai-pmh')"]),
    ],
)
def test_other_harvesters(site: Running, harvest: Callable[..., Counts], probe: list[str]) -> None:
    if not works(probe):
        pytest.skip(f"{probe[0]} has no OAI client here (libhttp-oai-perl, npm oai-pmh in $ARCHEC_TEST_NODE)")
    assert harvest(site.oai, metadataPrefix="oai_dc") == (30, 1)
    assert harvest(site.oai, metadataPrefix="oai_dc", set="type:paper").all == 13
    assert harvest(site.oai, metadataPrefix="redif", from_="2020-01-01").all == 30


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
