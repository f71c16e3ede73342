"""The setting ``collections``: every example of the Distributed Archive Config, pywb's names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from archec.config import CollectionConfig, parse
from archec.config.pywb import load_pywb
from archec.errors import ConfigError

EXAMPLES = """
collections:
  local_full:
    index:
      type: file
      path: file:///local/index/
    resource:
      - file:///local/warcs
      - http://remote/path/to/warcs
  local:
    index: /local/index
    resource:
      - /local/warcs
      - http://remote/path/to/warcs
  aqpt_full:
    index:
      type: memento
      timegate_url: http://arquivo.pt/wayback/{url}
      timemap_url: http://arquivo.pt/wayback/timemap/link/{url}
      replay_url: http://arquivo.pt/wayback/{timestamp}id_/{url}
    resource: $live
  aqpt: memento+http://arquivo.pt/wayback/
  rhiz_full:
    index:
      type: cdx
      api_url: http://webenact.rhizome.org/all-cdx?url={url}&closest={timestamp}
      replay_url: http://webenact.rhizome.org/all/{timestamp}id_/{url}
    resource: $live
  rhiz: cdx+http://webenact.rhizome.org/all-cdx
  ia_full:
    index:
      type: cdx
      api_url: http://web.archive.org/cdx?url={url}&closest={timestamp}
      replay_url: http://web.archive.org/web/{timestamp}id_/{url}
    resource: $live
  ia: cdx+http://web.archive.org/cdx /web/
  live_full:
    index:
      type: live
  live: $live
  remote-cdx:
    index: cdx+http://path/to/cdx/server
    resource: http://path/to/warc/storage
  many:
    index_group:
      ia: cdx+http://web.archive.org/cdx /web
      aqpt: memento+http://arquivo.pt/wayback/
      rhiz: cdx+http://webenact.rhizome.org/all-cdx
      local: ./local/index
    resource:
      - $live
      - ./local/warcs
    index_timeout: 5.0
  seq_fallback:
    sequence:
      - index: ./local/index/
        resource:
          ./local/warcs
      - index_group:
          ia: cdx+http://web.archive.org/cdx /web
          aqpt: memento+http://arquivo.pt/wayback/
          rhiz: cdx+http://webenact.rhizome.org/all-cdx
        index_timeout: 3.0
      - index: $live
  prefixes:
    index: /local/index
    resource:
      - $live
      # warc prefix to find exact WARC path
      - warc-prefix+file:///local/warcs
      - warc-prefix+http://remote/warc/path/
      # text-based filename lookup
      - warc-index+file:///warc/path-index.txt
      # redis-based filename lookup
      - warc-index+redis://redis/hash_key
"""


def read(text: str) -> dict[str, CollectionConfig]:
    return {one.name: one for one in parse(text, Path("config.yaml")).collections}


def test_full_schemas_and_shorthands_of_the_examples_mean_the_same() -> None:
    found = read(EXAMPLES)
    for name in ("aqpt", "ia", "live"):
        full, short = found[f"{name}_full"].steps[0], found[name].steps[0]
        assert full.resources == short.resources
        assert [one.replay_url for one in full.sources] == [one.replay_url for one in short.sources]
        assert [one.timemap_url for one in full.sources] == [one.timemap_url for one in short.sources]
    assert found["rhiz"].steps[0].sources[0].replay_url == "http://webenact.rhizome.org/all/{timestamp}id_/{url}"
    assert found["local_full"].steps[0].sources[0].path == "/local/index/"
    assert [one.place for one in found["local"].steps[0].resources] == ["/local/warcs", "http://remote/path/to/warcs/"]


def test_groups_and_sequences_of_the_examples() -> None:
    found = read(EXAMPLES)
    many = found["many"].steps[0]
    assert [one.name for one in many.sources] == ["ia", "aqpt", "rhiz", "local"]
    assert many.grouped
    assert many.timeout == 5.0
    assert many.sources[0].replay_url == "http://web.archive.org/web/{timestamp}id_/{url}"
    steps = found["seq_fallback"].steps
    assert [step.timeout for step in steps] == [5.0, 3.0, 5.0]
    assert [step.sources[0].type for step in steps] == ["file", "cdx", "live"]
    assert [one.kind for one in steps[1].resources] == ["live"]
    kinds = [one.kind for one in found["prefixes"].steps[0].resources]
    assert kinds == ["live", "prefix", "prefix", "index", "redis"]


def test_names_that_pywb_uses() -> None:
    found = read("""
collections:
  a: ./index
  b: {index_paths: ./index, archive_paths: [./archive], timeout: 0.5}
  c: {index_group: {x: cdxj+http://h/c-cdx, y: wb-memento+http://h/w, z: zipnum+./z.idx, r: redis://h/2/k}}
  d: http://h/wayback
  e: {index: $archive}
  f: {index: {type: redis, redis_url: 'redis://h/k'}}
""")
    assert found["b"].steps[0].timeout == 0.5
    assert found["b"].steps[0].resources[0].place == "./archive"
    types = [one.type for one in found["c"].steps[0].sources]
    assert types == ["cdx", "memento", "zipnum", "redis"]
    assert found["c"].steps[0].sources[1].replay_url == "http://h/w/{timestamp}im_/{url}"
    assert found["d"].steps[0].sources[0].type == "memento"
    assert found["e"].steps[0].sources[0].type == "archec"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: {index_tmeout: 3, index: x}", "a: unknown setting index_tmeout; did you mean index_timeout?"),
        ("a: {index: x, index_paths: y}", "a: index and index_paths are the same setting"),
        ("a: {index: x, resource: y, archive_paths: z}", "a: resource and archive_paths are the same setting"),
        ("a: {index: x, timeout: 1, index_timeout: 1}", "the same setting"),
        ("a: {resource: x}", "a: needs one of index, index_group and sequence"),
        ("a: {index: xmlquery+http://h/}", "a: index: xmlquery is not supported; a CDX server is 'cdx+URL'"),
        ("a: {index: cdx+http://h/cdx /web/ more}", "a: index: cdx+URL is followed by '/web/ more', which is not one"),
        ("a: {index: {type: xmlquery, api_url: x}}", "xmlquery is not supported"),
        ("a: {index: {type: cdx, api_url: 'http://h/x?url={ur}'}}", "a: index: api_url must have {url} in it"),
        (
            "a: {index: {type: cdx, api_url: 'http://h/x?url={url}&at={own}', replay_url: 'http://h/{timstamp}/{url}'}}",
            "a: index: replay_url: unknown name {timstamp}; did you mean timestamp?",
        ),
        ("a: {INDEX: x}", "did you mean index?"),
        ("a: {index: live+http://h/}", "write '$live'"),
        ("a: {index: $liv}", "did you mean $live?"),
        ("a: {index: memeto+http://h/}", "did you mean memento+?"),
        ("a: {index: {type: mement}}", "unknown type mement; did you mean memento?"),
        ("a: {index: {type: file, pth: x}}", "unknown setting pth of type file; did you mean path?"),
        ("a: {index: {type: memento, timegate_url: 'http://h/{url}'}}", "needs replay_url"),
        ("a: {index: {type: memento, timegate_url: 'http://h/{url}', replay_url: ''}}", "replay_url must be text"),
        ("a: {index: {path: x}}", "needs a type"),
        ("a: {index: [x]}", "index_group"),
        ("a: {index: ftp://h/}", "neither a path nor a known index"),
        ("a: {index: x, resource: []}", "resource must be a path"),
        ("a: {index: x, resource: warc-prefx+/x}", "did you mean warc-prefix+?"),
        ("a: {index: x, index_timeout: 0}", "more than 0"),
        ("a: {index: x, index_timeout: soon}", "index_timeout"),
        ("a: {index: x, index_timeout: .inf}", "index_timeout"),
        ("a: {index: x, index_timeout: .nan}", "index_timeout"),
        ("a: {sequence: []}", "list of steps"),
        ("a: {sequence: [{index: x}], resource: y}", "resource belongs in the steps"),
        ("a: {sequence: [{index: x}], timeout: 3}", "a: timeout belongs in the steps"),
        ("a: {sequence: [{indx: x}]}", "a: step 1: unknown setting indx; did you mean index?"),
        ("a: 3", "must be a group of settings"),
        ("oai: x", "no collection may be named oai"),
        ("web: x", "no collection may be named web"),
        ("metrics: x", "no collection may be named metrics"),
        ("a/b: x", "not a valid name of a collection"),
        ("2016: x", "not text: write '2016' in quotes"),
        ("a: {index: redis://h}", "redis://HOST/KEY"),
        ("[a]", "must be groups"),
    ],
)
def test_what_is_refused_and_how(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"collections:\n  {text}" if not text.startswith("[") else f"collections: {text}")
    assert "config.yaml: collections" in str(caught.value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules: [{rights: opn}]", "rule 1: rights must be one of open, metadata, closed, withdrawn"),
        ("rules: [{archve: a, rights: open}]", "rule 1: unknown key archve; did you mean archive?"),
        ("rules: [{rights: closed, until: soon}]", "rule 1: until must be a date"),
        ("rules: [{rights: closed, until: 0y}]", "rule 1: until must be a date"),
        ("rules: [{rights: closed, until: '2027-02-30'}]", "rule 1: until must be a date"),
        ("rules: [{rights: closed, until: 2027-02-30}]", "not valid YAML: day "),
        ("cors: x", "must be '*', or a list of origins"),
        ("cors: ['https://example.org/']", "must be '*', or a list of origins"),
        ("cors: ['https://Example.org']", "must be '*', or a list of origins"),
        ("live: []", "must be on or off"),
        ("rules: [{rights: closed, host: 'x.org:8080'}]", "rule 1: host must be a name like example.org"),
        ("rules: [{rights: closed, handle: 'http://x.org/'}]", "rule 1: handle must be one like RePEc:"),
        ("rules: [{rights: closed, url_prefix: x.org/a}]", "rule 1: url_prefix must be a beginning like http://"),
        ("rules: [{rights: closed, url_prefix: 'http://x.org/a*'}]", "rule 1: url_prefix must be"),
        ("rules: [{rights: closed, handle: 'zzz:wpaper:1'}]", "rule 1: handle must be one like RePEc:aaa:ssssss:1"),
        ("rules: [{rights: closed, handle: 'RePEc:zzz:*'}]", "archive and series stand for all of theirs"),
        ("rules: [{rights: closed, archive: 'zzz:wpaper'}]", "rule 1: archive must be one like aaa"),
        ("rules: [{rights: closed, archive: ''}]", "rule 1: archive must be one like aaa"),
        ("rules: [{rights: closed, series: wpaper}]", "aaa:ssssss, or ssssss with archive: aaa"),
        ("rules: [{rights: closed, series: 'RePEc:zzz:*'}]", "rule 1: series must be one like aaa:ssssss"),
        ("rules: [{rights: closed, mime: pdf}]", "rule 1: mime must be one like application/pdf or image/*"),
        ("rules: [{rights: closed, mime: '*'}]", "rule 1: mime must be"),
        ("rules: [{rights: open, networks: [x]}]", "networks"),
        ("rules: [{rights: open, networks: []}]", "rule 1: networks is empty"),
        ("rules: [{rights: open, until: ''}]", "rule 1: until is empty"),
        ("open: all", "none, metadata or content"),
        ("cache: soon", "not a duration"),
    ],
)
def test_what_is_refused_of_access(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"access: {{{text}}}", Path("config.yaml"))
    assert told in str(caught.value)


def test_access_as_written() -> None:
    config = parse(
        "access: {live: on, cache: 5m, open: metadata,"
        " rules: [{archive: RePEc:aaa, series: ssssss, networks: 10.0.0.0/8, rights: open, until: 2027-01-01}]}",
        Path("config.yaml"),
    )
    assert config.access.live
    assert config.access.cache == 300
    assert config.access.rules[0].networks == ("10.0.0.0/8",)
    assert config.access.rules[0].until == "2027-01-01"
    assert config.access.rules[0].series == "aaa:ssssss"


def test_a_configuration_of_pywb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "collections" / "one" / "indexes").mkdir(parents=True)
    (tmp_path / "collections" / "two" / "indexes").mkdir(parents=True)
    file = tmp_path / "config.yaml"
    file.write_text("""
debug: true
framed_replay: false
archive_paths: ./warcs
collections:
  every: $all
  plain: ./index
  group:
    index_group: {ia: 'cdx+http://h/cdx /web/', near: {type: file, path: ./near, archive_paths: ./w}}
    timeout: 0.0
    acl_paths: ./acl
    title: x
  seq:
    name: x
    timeout: 3
    sequence: [{index: '${INDEXES}/one', name: near, acl_paths: ./acl, timeout: '10'}, {index: $live}]
""")
    monkeypatch.setenv("INDEXES", "/indexes")
    found = load_pywb(file)
    ignored = ("debug", "framed_replay", "group.acl_paths", "group.title", "group.index_group.near.archive_paths")
    assert found.ignored == (*ignored, "seq.name", "seq.timeout", "seq.sequence.acl_paths")
    by_name = {one.name: one for one in found.collections}
    assert set(by_name) == {"one", "two", "every", "plain", "group", "seq"}
    assert [one.name for one in by_name["every"].steps[0].sources] == ["one", "two"]
    assert [(one.kind, one.source) for one in by_name["every"].steps[0].resources] == [
        ("path", "one"), ("path", "two"), ("live", ""),
    ]  # fmt: skip
    assert by_name["plain"].steps[0].sources[0].path == str(tmp_path / "index")
    assert [one.kind for one in by_name["plain"].steps[0].resources] == ["path", "live"]
    assert by_name["group"].steps[0].timeout == 5.0
    assert (by_name["seq"].steps[0].name, by_name["seq"].steps[0].timeout) == ("near", 10.0)
    assert by_name["seq"].steps[0].sources[0].path == "/indexes/one"
    file.write_text("{enable_auto_colls: false, collections: {every: $all, cluster: ./all.summary}}")
    every, cluster = (one.steps[0].sources[0] for one in load_pywb(file).collections)
    assert (every.type, every.path, cluster.type) == ("file", str(tmp_path / "collections"), "zipnum")
    file.write_text("collections: {a: {indx: x}}")
    with pytest.raises(ConfigError, match="a: unknown setting indx; did you mean index"):
        load_pywb(file)
    file.write_text("# all collections are below collections_root")
    assert [one.name for one in load_pywb(file).collections] == ["one", "two"]
    (tmp_path / "collections" / "web" / "indexes").mkdir(parents=True)
    with pytest.raises(ConfigError, match="collections/web: no collection may be named web"):
        load_pywb(file)
    for text in (f"timeout: '{'9' * 5000}'", f"timeout: {'9' * 400}", "archive_paths: &a [*a]"):
        file.write_text(f"collections: {{a: {{index: x, {text}}}}}")
        with pytest.raises(ConfigError):
            load_pywb(file)
    file.write_text("archive_paths: 5")
    with pytest.raises(ConfigError, match="archive_paths must be a path or a list of paths"):
        load_pywb(file)
