"""The examples of the Distributed Archive Config and of docs/access.md, on a server, with their hosts on loopback."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from access_support import WRITER, client, configured, give_tokens, rows, serving, write_index
from click.testing import CliRunner
from remote_archives import STAMPS, Archives, U, archives
from test_access_config import EXAMPLES
from warc_files import Crawl
from warcio.archiveiterator import ArchiveIterator

from archec.access.tokens import TokenFile
from archec.cli.access import access
from archec.config import Config, parse

DOCS = (Path(__file__).parents[2] / "docs" / "access.md").read_text(encoding="utf-8")
HERE = "http://here.org/"


def blocks(kind: str) -> list[str]:
    return [part.partition("```")[0] for part in DOCS.split(f"```{kind}\n")[1:]]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archives]:
    """All the other archives, and a folder with what the examples have on this machine."""
    folder = tmp_path_factory.mktemp("there")
    crawl = Crawl(folder / "warcs" / "a.warc.gz")
    for url in (HERE, "http://example.org/", "http://example.org/a"):
        for stamp in STAMPS:
            crawl.response(url, stamp, f"{url} at {stamp}".encode())
    with archives() as server:
        server.warcs, server.lines = folder / "warcs", crawl.close()
        yield server


def with_hosts(text: str, there: Archives, folder: Path) -> str:
    """The text of an example with loopback in place of its hosts, and ``folder`` in place of its absolute folders."""
    for host in ("arquivo.pt", "webenact.rhizome.org", "web.archive.org"):
        text = text.replace(f"http://{host}", there.url)
    text = re.sub(r"http://remote/(path/to/warcs|warc/path/)", f"{there.url}/warcs/", text)
    text = text.replace("http://path/to/warc/storage", f"{there.url}/warcs")
    text = text.replace("http://path/to", f"{there.url}/path/to").replace("redis://redis/", "redis://127.0.0.1:1/")
    text = re.sub(r"(?<![.\w])/(local|warc|srv)/", rf"{folder}/\1/", text)
    return text.replace("file:///local", f"file://{folder}/local")


def furnish(folder: Path, there: Archives) -> None:
    """The indexes and WARC files that the examples have."""
    for index in ("local/index/a.cdxj", "srv/vault/indexes/a.cdxj", "near.cdxj", "far/index/a.cdxj"):
        write_index(folder / index, there.lines)
    for warcs in ("local/warcs", "srv/vault/archive", "srv/warcs", "warcs"):
        (folder / warcs).parent.mkdir(parents=True, exist_ok=True)
        (folder / warcs).symlink_to(there.warcs)
    (folder / "warc").mkdir()
    (folder / "warc" / "path-index.txt").write_text(f"a.warc.gz\t{there.warcs}/a.warc.gz\n")


def payload(answer: httpx.Response) -> bytes:
    assert answer.status_code == 200, answer.text
    return next(iter(ArchiveIterator(io.BytesIO(answer.content)))).content_stream().read()  # type: ignore[no-any-return]


def found(get: httpx.Client, coll: str, url: str) -> set[tuple[str, str]]:
    answer = get.get(f"/{coll}/index?url={url}&closest=2014&output=json")
    return {(row["source"].partition(":")[0], row["source_type"]) for row in rows(answer.text)}


def answers(get: httpx.Client, names: list[str], many: set[str]) -> None:
    """What each of these collections of both documents finds, and loads. ``many`` are the others of that group."""
    remote = {"ia": "cdx", "aqpt": "memento", "rhiz": "cdx"}
    for name in names:
        kind = remote.get(name.removesuffix("_full"))
        if kind is not None:
            assert found(get, name, U) == {(name, kind)}, name
            assert payload(get.get(f"/{name}/resource?url={U}&closest=20140101000000")) == b"first"
    assert found(get, "many", U) == {(name, remote[name]) for name in many}
    assert found(get, "many", HERE) == {("local", "file")}
    assert payload(get.get(f"/many/resource?url={U}&closest=20140101000000")) == b"first"
    assert payload(get.get(f"/many/resource?url={HERE}&closest=2014")) == f"{HERE} at {STAMPS[1]}".encode()


def test_the_examples_of_the_distributed_archive_config(there: Archives, tmp_path: Path) -> None:
    furnish(tmp_path, there)
    text = with_hosts(EXAMPLES, there, tmp_path)
    config = configured(tmp_path, f"{text}\naccess: {{live: on}}\nfetch: {{allow_networks: [127.0.0.1/32]}}\n")
    give_tokens(config)
    with serving(config) as url, client(url, WRITER) as get:
        answers(get, [one.name for one in config.collections], {"ia", "aqpt", "rhiz"})
        for name in ("local", "local_full", "remote-cdx", "prefixes"):
            assert payload(get.get(f"/{name}/resource?url={HERE}")) == f"{HERE} at {STAMPS[0]}".encode(), name
        for name in ("live", "live_full"):
            assert payload(get.get(f"/{name}/resource?url={there.url}/live/x")) == b"GET "
            assert payload(get.post(f"/{name}/resource?url={there.url}/live/x", content=b"data")) == b"POST data"
            raw = "GET /\r\nUser-Agent: test\r\n\r\n"
            assert payload(get.post(f"/{name}/resource-post?url={there.url}/live/x", content=raw)) == b"GET "
            assert there.asked[-1][2]["User-Agent"] == "test"
        assert found(get, "seq_fallback", HERE) == {("seq_fallback", "file")}
        assert found(get, "seq_fallback", U) == {("ia", "cdx"), ("aqpt", "memento"), ("rhiz", "cdx")}
        assert found(get, "seq_fallback", "http://live.org/") == {("seq_fallback", "live")}
        record = get.get(f"/many/resource?url={U}&closest=20140101000000")
        assert record.headers["archive-source-coll"] in ("ia", "aqpt", "rhiz")


@pytest.fixture
def documented(there: Archives, tmp_path: Path) -> Config:
    """The collections and rules of docs/access.md in one configuration."""
    furnish(tmp_path, there)
    texts = [with_hosts(text, there, tmp_path) for text in blocks("yaml")]
    collections = "".join(text.partition("\n")[2] for text in texts if text.startswith("collections:"))
    others = "".join(text for text in texts if not text.startswith("collections:"))
    config = configured(tmp_path, f"collections:\n{collections}{others}fetch: {{allow_networks: [127.0.0.1/32]}}\n")
    give_tokens(config)
    return config


def test_the_requests_of_the_docs(documented: Config, there: Archives) -> None:
    asked = [line.split() for block in blocks("text") for line in block.splitlines() if line.startswith("GET ")]
    assert len(asked) >= 12
    with serving(documented) as url, client(url) as get:
        answers(get, [one.name for one in documented.collections], {"ia", "aqpt"})
        for coll in ("local", "two", "first_then"):
            assert found(get, coll, HERE) == {(kind, "file") for kind in {"two": ("near", "far")}.get(coll, (coll,))}
        for _, path, status, *_ in asked:
            answer = get.get(path)
            assert answer.status_code == int(status), (path, answer.text)
        assert "archive" in get.get("/own/index?url=example.org").headers["reserrors"]


def test_the_commands_of_the_docs(
    documented: Config, there: Archives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.cdxj").write_bytes(there.lines[0] + b"\n")
    (tmp_path / "gone.cdxj").write_bytes(there.lines[0] + b"\n")
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("archec access ")]
    assert len(lines) >= 8
    lines.sort(key=lambda line: "revoke" in line)  # explain speaks of the token
    for line in lines:
        words = shlex.split(line.replace("/srv/", f"{tmp_path}/srv/"))[2:]
        if words[0] not in ("sort", "index"):
            words += ["--config", str(documented.file)]
        run = CliRunner().invoke(access, words, catch_exceptions=False)
        assert run.exit_code == 0, (line, run.output)
    assert (tmp_path / "srv" / "warcs.cdxj").read_bytes().count(b"\n") == len(there.lines)
    names = [token.name for token in TokenFile(documented.path(documented.access.tokens)).tokens()]
    assert sorted(names) == ["lister", "reader", "visitor", "writer"]


@pytest.mark.parametrize("number", range(len(blocks("yaml"))))
def test_each_example_of_a_configuration_stands_alone(number: int, tmp_path: Path) -> None:
    config = parse(blocks("yaml")[number], tmp_path / "config.yaml")
    assert config.collections or config.access.rules
