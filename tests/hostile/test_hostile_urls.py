"""URLs that lead where archec does not go, or carry what it must not keep."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gather_site import Answer, Site, moved, pdf
from gather_support import archec_cli, archec_inline, check, histories, make, outcomes, template, write_papers
from hostile_support import assert_clean, gathered, problems, written
from web_hostile import Hostile, hostile_server

from archec.config import Config

SECRET = "Tr0ub4dor-secret"
SETTINGS: dict[str, object] = {
    "fetch.host_failures": 10_000, "fetch.connect_timeout": "2s", "fetch.idle_timeout": "2s",
    "fetch.allow_networks": ["127.0.0.9/32"], "fetch.concurrency": 64, "fetch.per_host": 16,
}  # fmt: skip


@pytest.fixture
def config(folder: Path) -> Config:
    """An archive that may fetch from 127.0.0.9 only; all other loopback is as private as it ever was."""
    return make(folder / "archive", SETTINGS)


@pytest.fixture
def private() -> Iterator[Hostile]:
    """A server that nobody may ask, on 127.0.0.1 to 127.0.0.3."""
    with hostile_server(3) as server:
        yield server


BAD = [
    "file:///C:/x", "file:///etc/passwd", "hhttp:", "hhttp://h.example/x", "http:", "http://", "http:///x", "http:/x",
    "http://[::1", "http://[fe80::1%25eth0]/", "http://h:99999/", "http://h:-1/", "http://h:8x/", "//h.example/x", "x",
    "javascript:alert(1)", "data:text/plain,x", "gopher://127.0.0.1:70/x", "dict://127.0.0.1/", "ldap://127.0.0.1/",
    "http://" + "a" * 300 + "/", "http://" + "a." * 200 + "example/", "http://a..b/", "http://.../", "http://a_b!c/",
    "http://xn--\u20ac/", "http://\ufffd/", "http://%00/", "http://%ff/", "http://a%2fb/", "http://h/" + "x" * 20_000,
    "http://127.0.0.1\\x/", "c:\\papers\\x.pdf", "mailto:a@b.example", "\u202ehttp://x/",
]  # fmt: skip


def test_urls_that_are_none(config: Config) -> None:
    """Each is counted, with the handle of its template, its file and its line; a good one is fetched all the same."""
    with Site("127.0.0.9") as site:
        site["/ok"] = pdf("ok")
        write_papers(config, [*BAD, site.url("/ok")])
        report = gathered(config)
    told = report["problems"]["first"]
    assert report["problems"]["by_code"] == {"bad-url": len(BAD)}
    assert {one["line"] for one in told} == {3 + 5 * n for n in range(len(BAD))}
    assert all(re.search(r"RePEc:aaa:sss:\d+", one["message"]) for one in told)
    assert {one["path"] for one in told} == {"aaa/sss/papers.rdf"}
    assert report["fobis"] == {"new": 1}
    check(config)


def test_urls_that_only_look_bad(config: Config) -> None:
    """Blanks, line breaks, IDN, capitals, 3,000 characters, what is not in the grammar: normalised, fetched, held."""
    with Site("127.0.0.9") as site:
        long = "/" + "x" * 3000
        paths = {
            "/a b": "/ab", "/\u2013": "/%E2%80%93", "/%7euser": "/~user", "/./y/../z": "/z", "/%zz": "/%25zz",
            long: long,
            "/q?a=<b>&c=\"d\"": "/q?a=%3Cb%3E&c=%22d%22", "/frag#ment": "/frag", "/[x]": "/%5Bx%5D", "/\x01": "/%01",
        }  # fmt: skip
        for path in paths.values():
            site[path] = pdf(path)
        urls = [site.url(path) for path in paths]
        urls[0] = urls[0].replace("http://", " HTTP: //").replace("127.0.0.9", "127.0.0.9 ")
        write_papers(config, urls)
        assert gathered(config)["fobis"] == {"new": len(paths)}
        held = {url for url in histories(config) if url.startswith("http")}
        assert held == {site.url(path) for path in paths.values()}
    check(config)


def disguises(port: int) -> list[str]:
    """Every way to write an address of this machine or of its network, that is not 127.0.0.9."""
    hosts = [
        "127.0.0.2", "127.0.0.3", "2130706434", "0x7f000002", "0x7f.0.0.2", "0177.0.0.2", "017700000002", "127.2",
        "127.0.2",
        "localhost", "LOCALHOST.", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.2]", "[::ffff:7f00:2]",
        "[::127.0.0.2]",
        "[64:ff9b::7f00:2]", "[2002:7f00:2::]", "\uff11\uff12\uff17.0.0.2", "127\u30020\u30020\u30022",
        "\u2460\u2461\u2466.0.0.2",
        "127.0.0.2.", "%31%32%37.0.0.2", "user@127.0.0.2", "127.0.0.1@127.0.0.2", "169.254.169.254", "0xa9fea9fe",
        "2852039166", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "[fd00::1]", "[fe80::1]", "[fec0::1]",
        "224.0.0.1",
        "255.255.255.255", "198.18.0.1",
    ]  # fmt: skip
    return [f"{scheme}://{host}:{port}/ok" for host in hosts for scheme in ("http", "https", "ftp")]


def test_no_address_of_a_private_network_is_asked(config: Config, private: Hostile) -> None:
    urls = disguises(private.port)
    write_papers(config, urls)
    report = gathered(config)
    assert private.connections == 0
    assert set(report["fobis"]) <= {"blocked-address", "unreachable"}, report["fobis"]
    assert sum(report["fobis"].values()) + report["problems"]["by_code"].get("bad-url", 0) >= len(urls) - 30
    unreachable = {url for url, outcome in outcomes(config).items() if outcome == "unreachable"}
    assert all(".:" in url for url in unreachable), "only what is no address, but a name with a dot at its end"
    check(config)


def test_no_redirect_leads_into_a_private_network(config: Config, private: Hostile) -> None:
    targets = ["file:///etc/passwd", "gopher://127.0.0.1:70/", f"//127.0.0.2:{private.port}/"]
    targets += disguises(private.port)[::3]
    with Site("127.0.0.9") as site:
        for n, target in enumerate(targets):
            site[f"/{n}"] = Answer(302, headers={"Location": target.encode().decode("latin-1")})
            site[f"/far/{n}"] = moved(f"/{n}")
        urls = [site.url(path) for n in range(len(targets)) for path in (f"/{n}", f"/far/{n}")]
        write_papers(config, urls)
        report = gathered(config)
    assert private.connections == 0
    assert set(report["fobis"]) <= {"blocked-address", "unreachable", "bad-url"}
    assert sum(report["fobis"].values()) == len(urls)
    assert not any(url.startswith("http") for url in histories(config))
    check(config)


def test_robots_of_a_private_address_are_not_asked_for_either(folder: Path, private: Hostile) -> None:
    config = make(folder / "archive", {**SETTINGS, "fetch.robots": "obey"})
    with Site("127.0.0.9") as site:
        site["/robots.txt"] = moved(f"http://127.0.0.2:{private.port}/robots.txt")
        hosts = ("127.0.0.2", "localhost")
        write_papers(config, [*(f"http://{host}:{private.port}/ok" for host in hosts), site.url("/x")])
        report = gathered(config)
    assert private.connections == 0
    assert report["fobis"] == {"blocked-address": 3}


def test_passwords_are_neither_kept_nor_told(folder: Path) -> None:
    """Only the template itself, which its archive published, has them: its text is kept as it is."""
    config = make(folder / "archive", {**SETTINGS, "fetch.robots": "obey", "fetch.retries": 0})
    with Site("127.0.0.9") as site:
        host = site.url("")[7:]
        user = f"user:{SECRET}@"
        site["/ok"] = pdf("ok", Link=f'<http://{user}h.example/>; rel="x"')
        site["/moved"] = Answer(301, headers={"Location": f"http://{user}{host}/ok"})
        site["/lost"] = Answer(301, headers={"Location": f"http://{user}10.0.0.1/x"})
        site["/bad"] = Answer(301, headers={"Location": f"http://user:{SECRET}%40h:x/"})
        site["/worse"] = Answer(301, headers={"Location": f"hhttp://{user}h/"})
        site["/slash"] = Answer(301, headers={"Location": f"http://user:x/{SECRET}@h/"})
        urls = [
            f"http://{user}{host}/ok", f"http://{user}{host}/gone", f"http://{SECRET}@{host}/moved",
            f"ftp://{user}{host}/x",
            f"http://{user}10.0.0.1/x", f"http://{user}no-such-host.invalid/x", f"https://{user}{host}/tls",
            f"hhttp://{user}h/", f"http:/{user}h/", f"http://user:{SECRET}%40h/x", f"http://user%3A{SECRET}%40h/x",
            f"http://{user}h:99999/", f"http://{user}[::1/", f"//{user}h/x", f"{user}h/x",
            f"http:\\\\{user}h\\x", f"http://user:{SECRET}\uff20h/", *(site.url(f"/{p}") for p in ("moved", "lost",
            "bad", "worse", "slash")),
        ]  # fmt: skip
        folder_ = config.data_path / "aaa/sss"
        folder_.mkdir(parents=True)
        texts = [template(f"RePEc:aaa:sss:{n}", urls=[url]) for n, url in enumerate(urls)]
        (folder_ / "papers.rdf").write_text("\n".join(texts), encoding="utf-8")
        runs = [(archec_cli if command == ["gather"] else archec_inline)(config, *command) for command in (
            ["gather", "--dry-run"], ["gather"], ["gather", "--json", "--no-fetch"], ["dump", "--all"], ["runs",
            "--json"], ["lost"],
            ["changes"], ["status"], ["history", site.url("/moved"), "--json"], ["history", urls[0]], ["history",
            urls[7]],
            ["get", f"http://{user}{host}/none"], ["verify"], ["check"],
        )]  # fmt: skip
        assert all(header.get("authorization") is None for _, header in site.asked)
    assert runs[1].code == 0, runs[1]
    for done in runs:
        assert_clean(done)
        assert SECRET not in done.err, done
        assert SECRET.encode() not in done.out, done
    assert site.url("/moved") in histories(config)
    texts_kept = 0
    for path, data in written(config.base).items():
        if path.startswith("data/current/"):
            continue
        if re.search(r"archive/\d+/\d+/\d+/RePEc%3A", path):
            texts_kept += SECRET.encode() in data
        else:
            assert SECRET.encode() not in data, path
            assert SECRET not in path
    assert texts_kept == 17
    check(config)


def test_a_proxy_s_password_is_not_told(folder: Path) -> None:
    config = make(folder / "archive", {**SETTINGS, "fetch.proxy": f"http://user:{SECRET}@127.0.0.1:9/"})
    write_papers(config, ["http://127.0.0.1:8/x"])
    for command in (["gather"], ["gather", "--json"]):
        done = archec_inline(config, *command)
        assert done.code == 0
        assert SECRET not in done.err + done.out.decode()
    text = (config.base / "config.yaml").read_text()
    for wrong in (f"socks5://user:{SECRET}@h/", f"http://user:{SECRET}@[::1", f"http://user:{SECRET}@h:x/"):
        (config.base / "config.yaml").write_text(re.sub(r"proxy: .*", f"proxy: '{wrong}'", text))
        done = archec_inline(config, "gather")
        assert done.code == 1, done
        assert SECRET not in done.err + done.out.decode()
    (config.base / "config.yaml").write_text(text)
    done = archec_cli(config, "gather", env={"ARCHEC_DATABASE": f"mongodb://user:{SECRET}@/?x=y"})
    assert done.code == 1
    assert SECRET not in done.err
    for path, data in written(config.store_path).items():
        assert SECRET.encode() not in data, path


def test_a_location_that_is_too_long_is_not_cut(config: Config) -> None:
    """Half of a URL is the URL of something else."""
    with Site("127.0.0.9") as site:
        far = "/" + "x" * 9000
        site["/a"] = moved(far)
        site[far[:8192]] = pdf("not this")
        write_papers(config, [site.url("/a")])
        report = gathered(config)
        assert report["fobis"] == {"server-error": 1}
        assert len(site.asked) == 1


def test_a_body_named_in_gzip_that_is_none(config: Config) -> None:
    """Content-Encoding is the server's word, and the bytes are kept as they came."""
    with Site("127.0.0.9") as site:
        for n, body in enumerate((b"", b"\x1f\x8b", b"\x1f\x8b\x08" + bytes(20), gzip.compress(b"x" * 10**6)[:-9])):
            site[f"/{n}"] = Answer(200, body, {"Content-Encoding": "gzip", "Content-Type": "text/html"})
        write_papers(config, [site.url(f"/{n}") for n in range(4)])
        report = gathered(config)
        assert report["fobis"] == {"new": 4, "suspect": 1}
        assert problems(report) == set()
    check(config)
