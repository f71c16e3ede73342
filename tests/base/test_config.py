from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from archec.config import Config, as_yaml, load, parse
from archec.errors import ConfigError

ROOT = Path(__file__).parents[2]


def test_the_shipped_file_is_what_init_writes_and_holds_every_default() -> None:
    shipped = (ROOT / "config.yaml").read_text()
    assert shipped == as_yaml()
    assert parse(shipped, ROOT / "config.yaml") == Config(base=ROOT)


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert parse("", tmp_path / "c.yaml") == Config(base=tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fetch: {dealy: 3}", "did you mean fetch.delay?"),
        ("objct_store: x", "did you mean object_store?"),
        ("ReDIF_directry: x", "did you mean ReDIF_directory?"),
        ("allow_networks: []", "did you mean fetch.allow_networks?"),
        ("max_loss: 7", "max_loss: 7"),
        ("fetch: 3", "fetch must be a group"),
        ("[1]", "key: value"),
        ("a: [", "c.yaml:1"),
        ("fetch: {allow_networks: [bla]}", "fetch.allow_networks"),
        ("fetch: {allow_networks: [10.1.2.3/8]}", "10.1.2.3/8 is not a network: write 10.0.0.0/8, or 10.1.2.3/32 for"),
        ("fetch: {deny: [{networks: ['2001:db8::1/32']}]}", "write 2001:db8::/32, or 2001:db8::1/128 for"),
        ("server: {trusted_proxies: [127.0.0.1/8]}", "write 127.0.0.0/8"),
        ("access: {rules: [{networks: 127.0.0.5/8, rights: open}]}", "write 127.0.0.0/8"),
        ("fetch: {concurrency: 0}", "1 or more"),
        ("fetch: {concurrency: yes}", "whole number"),
        ("fetch: {proxy: 'socks5://x'}", "http://"),
        ("max_bytes: many", "not a size"),
        ("lost_grace: soon", "not a duration"),
        ("name: [x]", "must be text"),
        ("? [a]\n: b", "c.yaml:1"),
        ("server: {url: 'http://[::1'}", "broken IPv6 host"),
        ("server: {url: 'http://::1'}", "no valid host"),
        ("oai: {baseURL: 'http://example.org:70000/oai'}", "a port that is not a number up to 65535"),
        ("fetch: {deny: [{hosts: ['*.example.org']}]}", "'*.example.org' is not the name or the address of a host"),
        ("fetch: {deny: [{hosts: ['http://example.org/']}]}", "is not the name or the address of a host"),
        ("fetch: {deny: [{urls: ['example.org/*']}]}", "'example.org/*' matches no URL: write it from http://"),
        ("fetch: {deny: [{urls: ['*/privé/*']}]}", "%C3%A9 beyond ASCII"),
        ("fetch: {deny: [{urls: ['gopher://example.org/*']}]}", "only http, https and ftp are kept"),
        ("fetch: {insecure_hosts: ['example.org:443/']}", "is not the name or the address of a host"),
        ("oai: {collections: {a: {hosts: ['example.org/a']}}}", "is not the name or the address of a host"),
    ],
)
def test_what_is_refused_and_how(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, tmp_path / "c.yaml")
    assert told in str(caught.value)
    assert "c.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hosts_are_compared_as_urls_have_them(tmp_path: Path) -> None:
    given = "[Bücher.example, example.org., '::1', '[2001:DB8:0::1]']"
    hosts = ("xn--bcher-kva.example", "example.org", "[::1]", "[2001:db8::1]")
    config = parse(
        f"fetch: {{insecure_hosts: {given}, deny: [{{hosts: {given}}}]}}\n"
        "oai: {collections: {a: {hosts: ['Example.org:8080', '[::1]:81', Bücher.example]}}}",
        tmp_path / "c.yaml",
    )
    assert config.fetch.insecure_hosts == config.fetch.deny[0].hosts == hosts
    assert config.oai.collections[0].hosts == ("example.org:8080", "[::1]:81", "xn--bcher-kva.example")


def test_networks_of_mapped_addresses_are_those_of_ipv4(tmp_path: Path) -> None:
    given = "['::ffff:127.0.0.1', '::ffff:192.0.2.0/120', '::1', '::ffff:0:0/96']"
    server = parse(f"server: {{trusted_proxies: {given}}}", tmp_path / "c.yaml").server
    meant = ("127.0.0.1/32", "192.0.2.0/24", "::1/128", "::ffff:0:0/96")  # the last is written in two ways by Pythons
    assert tuple(map(ip_network, server.trusted_proxies)) == tuple(map(ip_network, meant))


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text("name: one")
    other.write_text("name: other")
    assert load(one).name == "one"
    assert load(None, environ={"ARCHEC_CONFIG": str(other)}).name == "other"
    assert load(one, environ={"ARCHEC_CONFIG": str(other)}).name == "one"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="archec init"):
        load(None, environ={})
    assert load(one, environ={"ARCHEC_DATABASE": "mongodb://x/y"}).database == "mongodb://x/y"


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = parse("object_store: store\nReDIF_directory: /abs", tmp_path / "c.yaml")
    assert config.store_path == tmp_path / "store"
    assert config.data_path == Path("/abs")


def test_a_user_agent_of_several_lines_is_one(tmp_path: Path) -> None:
    text = "fetch:\n  user_agent: >\n    archive/1.0\n    (mailto:a@b.org)\n"
    assert parse(text, tmp_path / "c.yaml").agent == "archive/1.0 (mailto:a@b.org)"
    assert "\n" not in parse("name: |\n  North\n  archive\n", tmp_path / "c.yaml").agent


def test_the_user_agent_names_the_archive_and_a_contact() -> None:
    config = parse("name: Test\nfetch: {contact: 'mailto:a@b'}", Path("c.yaml"))
    assert config.agent.startswith("archec/")
    assert "Test; mailto:a@b" in config.agent


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("database: mysql://x/y", "c.yaml: database: 'mysql://x/y': must be sqlite:///PATH"),
        ("database: sqlite:///", "c.yaml: database: "),
        ("textx: {}", "did you mean text?"),
        ("work_directory: ''", "must be a path"),
        ("name: null", "name: null: must be text, not empty"),
        ("name:", "must be text, not empty"),
        ("oai: {collections: {x: {archivs: [a]}}}", "x: unknown key archivs; did you mean archives?"),
        ("oai: {collections: {x: {name: y}}}", "x: unknown key name"),
        ("oai: {collections: [x]}", "oai.collections: ['x']: must be groups"),
        ("oai: {metadataFormats: [a b]}", "must be a list of names"),
        ("oai: {sets: [dom, x]}", "must be a list of some of archive"),
        ("oai: {adminEmail: me}", "'me': must be a list of email addresses"),
        ("fileset: {platforms: {zenodo: {token: abc def}}}", "must be the name of an environment variable"),
        ("fileset: {platforms: {osf: {}, zenodo: {tokn: X}}}", "zenodo: unknown key tokn; did you mean token?"),
        ("server: {port: 70000}", "must be a port, 0 to 65535"),
    ],
)
def test_messages_name_file_and_key(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, tmp_path / "c.yaml")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_collections_are_lower_case_as_ids_are() -> None:
    config = parse("oai: {collections: {N: {title: North, archives: AAA, series: ['RePEc:aaa:B']}}}", Path("c.yaml"))
    (found,) = config.oai.collections
    assert (found.name, found.title, found.archives, found.series) == ("N", "North", ("aaa",), ("aaa:b",))


def test_an_alias_is_no_second_time(tmp_path: Path) -> None:
    config = parse("fetch: &x {delay: 1s}\nname: y\n", tmp_path / "c.yaml")
    assert config.fetch.delay == 1


def test_a_database_in_the_environment_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("")
    with pytest.raises(ConfigError, match=r"ARCHEC_DATABASE.*\*\*\*@x") as caught:
        load(path, environ={"ARCHEC_DATABASE": "mysql://me:secret@x/y"})
    assert "secret" not in str(caught.value)


def test_paths_are_plain(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/deep")
    config = parse("object_store: a/../b/./c\nReDIF_directory: link/../d\nwork_directory: link", tmp_path / "c.yaml")
    assert config.store_path == tmp_path / "b" / "c"
    assert config.data_path == tmp_path / "real" / "d", "as the file system follows it"
    assert config.work_path == tmp_path / "link"
    assert config.memory("x") == tmp_path / "link.x"
    assert parse("work_directory: .", tmp_path / "c.yaml").memory("x") == tmp_path / "work.x", "not outside"


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a directory.*config\.yaml"):
        load(tmp_path)
