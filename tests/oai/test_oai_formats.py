"""Formats: the mapping to Dublin Core, archec's own, AMF, and one of a third party."""

from __future__ import annotations

import base64
import dataclasses
import errno
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from oai_support import DOMAIN, NS, World, checked, file, paper, texts, version_of

from archec.catalogue.model import Obi
from archec.config import Config, FormatConfig, OaiConfig, parse
from archec.errors import ConfigError, StorageFailed
from archec.history import History
from archec.oai.amf import Amf
from archec.oai.dc import DublinCore, date_of
from archec.oai.formats import Context
from archec.oai.items import Item, escaped, identifier, index_entry, local_of, local_part
from archec.oai.redif import Redif
from archec.oai.repository import load_formats
from archec.oai.sets import SetRules, reversed_host, set_part, set_part_text, set_path, with_ancestors
from archec.tist import iso

CONTEXT = Context(
    lambda name: f"http://x.org/oai?{name}",
    lambda series: f"Publisher of {series}",
    lambda name: f"http://x.org/{name}",
)

PAPER = """Template-Type: ReDIF-Paper 1.0
Author-Name: Jane van Doe
Author-Name-First: Jane
Author-Name-Last: van Doe
Author-Workplace-Name: University of X
Author-Name: John Roe
Author-Email: john@x.org
Title: On <tags> & co
Abstract: First line
 and second
Note: A note
Classification-JEL: C1; D20,E3 F4
Keywords: money, prices; banks
Creation-Date: 2009-05
Revision-Date: 2010-06-07
Length: 20 pages
Number: 12
Series: Working Papers
File-URL: http://x.org/a.pdf
File-Format: Application/pdf
File-Restriction: subscribers only
File-URL: ftp://x.org/b.ps
File-Format: Application/postscript
Order-URL: http://x.org/ order
DOI: https://doi.org/10.1234/abc
Language: en
Article-Handle: RePEc:bbb:journl:1
Handle: RePEc:AAA:wpaper:12
"""

ARTICLE = """Template-Type: ReDIF-Article 1.0
Title: T
Author-Name: A
Publisher-Name: The Press
Journal: J
Volume: 3
Issue: 2
Pages: 1-9
Year: 1999
Month: Sept.
ISBN: 0-12-345678-9
Handle: RePEc:aaa:journl:1
"""


def item(text: str) -> Item:
    return Item("oai:x.org:it", Obi("RePEc:aaa:s:1", "tobi", History.of({5: "0" * 64}), handle="RePEc:aaa:s:1"), text)


def dc(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in etree.fromstring(DublinCore("", "").metadata(item(text), CONTEXT)):
        found.setdefault(etree.QName(one).localname, []).append(str(one.text))
    return found


def test_dublin_core_of_a_paper() -> None:
    assert dc(PAPER) == {
        "title": ["On <tags> & co"],
        "creator": ["van Doe, Jane", "John Roe"],
        "subject": ["C1", "D20", "E3", "F4", "money", "prices", "banks"],
        "description": ["First line and second", "A note"],
        "publisher": ["Publisher of RePEc:aaa:wpaper"],
        "date": ["2009-05", "2010-06-07"],
        "type": ["preprint"],
        "format": ["Application/pdf", "Application/postscript"],
        "identifier": [
            "RePEc:AAA:wpaper:12", "http://x.org/a.pdf", "ftp://x.org/b.ps", "http://x.org/order",
            "https://doi.org/10.1234/abc",
        ],
        "source": ["Working Papers, number 12"],
        "language": ["en"],
        "relation": ["RePEc:bbb:journl:1", "RePEc:aaa:wpaper"],
        "rights": ["subscribers only"],
    }  # fmt: skip


def test_dublin_core_of_an_article() -> None:
    found = dc(ARTICLE)
    assert found["publisher"] == ["The Press"]
    assert found["date"] == ["1999-09"]
    assert found["type"] == ["article"]
    assert found["source"] == ["J, volume 3, issue 2, pages 1-9"]
    assert found["identifier"] == ["RePEc:aaa:journl:1", "urn:isbn:0-12-345678-9", "http://x.org/oai?oai:x.org:it"]


@pytest.mark.parametrize(
    ("value", "date"),
    [
        ("2009", "2009"), ("2009-05", "2009-05"), (" 2009-05-31 ", "2009-05-31"), ("2009-13", ""), ("May 2009", ""),
        ("20090531", ""), ("2009-5", ""), ("2009-05-32", ""), ("", ""), ("٢٠٠٩", ""),
    ],
)  # fmt: skip
def test_dates_are_never_guessed(value: str, date: str) -> None:
    assert date_of(value) == date


def test_amf() -> None:
    root = etree.fromstring(Amf("", "").metadata(item(PAPER), CONTEXT))
    (text,) = root
    assert text.get("id") == "info:lib/RePEc:AAA:wpaper:12"
    names = root.findall(".//{*}hasauthor/{*}person/{*}name")
    assert [one.text for one in names] == ["Jane van Doe", "John Roe"]
    assert root.findtext(".//{*}ispartof/{*}organization/{*}name") == "University of X"
    assert root.find("./*/{*}ispartof/{*}collection").get("ref") == "info:lib/RePEc:aaa:wpaper"  # type: ignore[union-attr]


def test_redif_tells_the_whole_history(small: World) -> None:
    lost = small.ask(
        "GetRecord", identifier=identifier("archive.example.org", "RePEc:aaa:wpaper:3"), metadataPrefix="redif"
    )
    assert lost.find(".//o:metadata", NS) is None
    small.show(paper("RePEc:aaa:wpaper:9", 0, title="T"))
    both = paper("RePEc:aaa:wpaper:9", 0, title="T", lost=True)
    back = paper("RePEc:aaa:wpaper:9", 0, tist=1_300_000_000, title="T2")
    merged = msgspec.structs.replace(
        both, history=History.of({**both.history.as_dict(), **back.history.as_dict()}),
        versions={**both.versions, **back.versions}, notes={**both.notes, **back.notes},
    )  # fmt: skip
    small.show(merged)
    root = small.ask(
        "GetRecord", identifier=identifier("archive.example.org", "RePEc:aaa:wpaper:9"), metadataPrefix="redif"
    )
    entries = root.findall(".//r:entry", NS)
    assert [one.get("kind") for one in entries] == ["appeared", "lost", "returned"]
    assert [one.get("tist") for one in entries] == ["1200000000", "1200086400", "1300000000"]
    assert entries[0].find("r:file", NS).get("url") == "http://h.org/a.pdf"  # type: ignore[union-attr]
    assert root.find(".//r:template", NS) is None  # its bytes are in no store here
    assert texts(root, ".//{*}provenance//{*}identifier") == ["RePEc:AAA:WPAPER:9"]


def held(world: World, obi_id: str, text: str, *, tist: int = 1_200_000_000) -> Obi:
    """A tobi with these bytes, which are in the store."""
    obi, version = paper(obi_id, 0, tist=tist), version_of(text)
    path = world.layout.root / world.layout.path(tist, obi.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return msgspec.structs.replace(obi, history=History.of({tist: version.sha256}), versions={version.sha256: version})


def test_bytes_of_the_store_come_out_as_they_are(world: World) -> None:
    plain, odd = PAPER, PAPER.replace("co\n", "co \x0b\x85\n")
    obis = [held(world, f"RePEc:aaa:wpaper:{n}", text) for n, text in enumerate((plain, odd))]
    world.show(*obis)
    (root,) = world.walk("ListRecords", metadataPrefix="redif")
    first, second = root.findall(".//r:template", NS)
    version = version_of(plain)
    assert (first.text, first.get("encoding"), first.get("md5")) == (plain, None, version.md5)
    assert first.get("sha256") == version.sha256
    assert second.get("encoding") == "base64"
    assert base64.b64decode(str(second.text)).decode() == odd
    assert texts(world.ask("ListRecords", metadataPrefix="oai_dc"), ".//dc:title") == ["On <tags> & co"] * 2


def test_a_series_that_changes_its_publisher_does_so_in_the_next_record_of_its_papers(world: World) -> None:
    text = "Template-Type: ReDIF-Paper 1.0\nTitle: One\nHandle: RePEc:aaa:wpaper:1\n"
    world.show(held(world, "RePEc:aaa:wpaper:1", text))
    for tist, name in enumerate(("The Old Press", "The New Press"), 1_200_000_000):
        text = f"Template-Type: ReDIF-Series 1.0\nName: S\nProvider-Name: {name}\nHandle: RePEc:aaa:wpaper\n"
        world.show(held(world, "RePEc:aaa:wpaper", text, tist=tist))
        answer = world.ask("GetRecord", metadataPrefix="oai_dc", identifier=f"oai:{DOMAIN}:RePEc:aaa:wpaper:1")
        assert texts(answer, ".//dc:publisher") == [name]


@settings(max_examples=150)
@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200),
    st.sampled_from(["Paper", "Series", "Junk", "Person"]),
)
def test_any_template_gives_well_formed_records(text: str, kind: str) -> None:
    whole = f"Template-Type: ReDIF-{kind} 1.0\nTitle: {text}\nAuthor-Name: {text}\nFile-URL: {text}\nHandle: {text}"
    for form in (DublinCore("", ""), Redif("", ""), Amf("", "")):
        etree.fromstring(form.metadata(item(whole), CONTEXT))


# -- a third party's format -----------------------------------------------------------------------

PLUGIN = '''
from lxml import etree
from archec.oai.formats import RecordFormat

class Tiny(RecordFormat):
    """Dublin Core with a title only: it has a schema, so that answers stay valid."""

    kinds = ("tobi",)

    def metadata(self, item, context):
        root = etree.Element("{http://www.openarchives.org/OAI/2.0/oai_dc/}dc")
        etree.SubElement(root, "{http://purl.org/dc/elements/1.1/}title").text = item.template.title.upper()
        return root

class Nothing:
    pass
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution of its own, installed: a module and its metadata."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "tiny_plugin.py").write_text(PLUGIN)
    info = folder / "tiny_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-plugin\nVersion: 1.0\n")
    points = "tiny = tiny_plugin:Tiny\nnothing = tiny_plugin:Nothing\nmissing = tiny_plugin:Missing\n"
    (info / "entry_points.txt").write_text(f"[archec.oai.formats]\n{points}")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "tiny_plugin", raising=False)


CONFIGURED = """
oai:
  metadataFormats:
    - oai_dc
    - metadataFormat: tiny
      metadataFormatClass: tiny
      metadataFormatSchema: http://www.openarchives.org/OAI/2.0/oai_dc.xsd
      metadataFormatNamespace: http://www.openarchives.org/OAI/2.0/oai_dc/
"""


@pytest.mark.usefixtures("plugin")
def test_a_format_of_another_package(small: World) -> None:
    config: Config = parse(CONFIGURED, Path("config.yaml"))
    small.use(config.oai)
    assert texts(small.ask("ListMetadataFormats"), ".//o:metadataPrefix") == ["oai_dc", "tiny"]
    (root,) = small.walk("ListRecords", metadataPrefix="tiny", set="archive:bbb")
    assert texts(root, ".//dc:title") == ["ABOUT REPEC:BBB:JOURNL:1"]
    assert len(small.identifiers(metadataPrefix="tiny")) == 8


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("formats", "message"),
    [
        ([FormatConfig("redif", "redif")], "oai_dc is missing"),
        ([FormatConfig("oai_dc", "oai_dc"), FormatConfig("oai_dc", "redif")], "twice"),
        ([FormatConfig("a", "unknown", "http://s", "n")], "no installed package has a format 'unknown'"),
        ([FormatConfig("a", "nothing", "http://s", "n")], "not a subclass"),
        ([FormatConfig("a", "missing", "http://s", "n")], "cannot be loaded"),
        ([FormatConfig("a", "tiny")], "lacks its schema"),
    ],
)
def test_formats_that_cannot_be(formats: list[FormatConfig], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_formats(formats)


def test_an_item_without_any_format(small: World) -> None:
    """noMetadataFormats: only where an operator replaced oai_dc by a class that knows no files."""

    class Templates(DublinCore):
        kinds = ("tobi",)

    fobi = small.identifiers(set="mim")[0]
    small.repository = dataclasses.replace(small.repository, formats={"oai_dc": Templates("", "")})
    assert small.ask("ListMetadataFormats", identifier=fobi).find("{*}error").get("code") == "noMetadataFormats"  # type: ignore[union-attr]


# -- names ----------------------------------------------------------------------------------------


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_identifiers_go_both_ways(local: str) -> None:
    made = identifier("a.org", local)
    assert local_of("a.org", made) == local
    assert local_of("b.org", made) is None
    assert made.isascii()
    assert escaped(local) == made[10:]


@pytest.mark.parametrize(
    "given_", ["oai:a.org:", "oai:a.org:%41", "oai:a.org:%ff", "oai:a.org:%2f", "oai:a.org:<", "x"]
)
def test_only_canonical_identifiers(given_: str) -> None:
    assert local_of("a.org", given_) is None


def test_local_parts_of_templates_and_files_never_meet() -> None:
    assert local_part("tobi", "RePEc:aaa:s:1") == "RePEc:aaa:s:1"
    assert local_part("tobi", "fobi:" + "0" * 32) == "tobi:fobi:" + "0" * 32
    assert local_part("fobi", "http://h.org/a") == "fobi:d80e13244426ce03587b48d344a3310d"
    assert local_part("fobi", "http://h.org/a") != local_part("fobi", "http://h.org/a/")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_parts_of_set_specs_go_both_ways(text: str) -> None:
    part = set_part(text)
    assert set_part_text(part) == text
    assert ":" not in part
    assert part.isascii()


def test_set_paths() -> None:
    assert set_path(("mim", "image", "svg+xml")) == "mim:image:svg!2Bxml"
    assert set_path(("archive", "aaa", "")) == "archive:aaa"
    assert with_ancestors(["a:b:c", "a:d", "e"]) == {"", "a", "a:b", "a:b:c", "a:d", "e"}
    assert reversed_host("www.nber.org") == ["org", "nber", "www"]
    assert reversed_host("www.nber.org:8080") == ["org", "nber", "www", ":8080"]
    assert reversed_host("127.0.0.1:80") == ["127.0.0.1", ":80"]
    assert reversed_host("[::1]") == ["[::1]"]


def test_sets_of_odd_items() -> None:
    rules = SetRules(OaiConfig().sets, ())
    assert index_entry(paper("no-prefix", 1, kind="ReDIF-Mirror 1.0"), rules).sets == ("type:mirror",)
    assert index_entry(paper("RePEc:aaa", 1, kind=""), rules).sets == ("archive:aaa",)
    assert index_entry(file("http://h/a", 1, type_=""), rules).sets == ("dom:h",)
    assert index_entry(file("http://h/a", 1, type_="text/html; charset=x"), rules).sets == ("dom:h", "mim:text:html")


def test_a_page_for_people(small: World) -> None:
    """The style sheet makes a page with links of every answer; only web addresses become links."""
    import archec.oai

    sheet = etree.XSLT(
        etree.parse(Path(archec.oai.__path__[0]) / "style.xsl"), access_control=etree.XSLTAccessControl.DENY_ALL
    )
    small.use(dataclasses.replace(small.config.oai, numOfRecords=4))
    small.show(paper("RePEc:aaa:wpaper:x;y%z", 0, title="javascript:alert(1)"))
    pages = {
        verb: sheet(small.ask(verb, **arguments))
        for verb, arguments in {
            "Identify": {}, "ListSets": {}, "ListMetadataFormats": {}, "ListRecords": {"metadataPrefix": "oai_dc"},
            "ListIdentifiers": {"metadataPrefix": "redif"}, "GetRecord": {},
        }.items()
    }  # fmt: skip
    links = {verb: [str(one) for one in page.xpath("//a/@href")] for verb, page in pages.items()}
    assert any("resumptionToken=" in one for one in links["ListRecords"])
    assert any("set=RePEc:aaa" in one for one in links["ListSets"])
    assert any("metadataPrefix=redif" in one for one in links["ListMetadataFormats"])
    assert pages["GetRecord"].xpath("string(//p[@class='error']/strong)") == "badArgument"
    odd = sheet(small.ask("ListRecords", metadataPrefix="oai_dc", set="archive:aaa", from_=iso(int(small.clock()) - 1)))
    for page_links in (*links.values(), [str(one) for one in odd.xpath("//a/@href")]):
        assert all(one.startswith(("http://", "https://")) for one in page_links)
    record = next(str(one) for one in odd.xpath("//a/@href") if "x%3By" in str(one) and "GetRecord" in str(one))
    from archec.oai.request import parse_arguments

    assert texts(checked(small.raw(parse_arguments(record.partition("?")[2].encode()))), ".//dc:title") == [
        "javascript:alert(1)"
    ]


def test_an_unreadable_template_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archec.oai.items._MAX_REPORTED", 3)
    world.show(*(paper(f"RePEc:aaa:s:{n}", 0) for n in range(9)))
    path = world.layout.root / world.layout.path(1_200_000_000, "RePEc:aaa:s:0")
    path.parent.mkdir(parents=True)
    path.write_text("Template-Type: ReDIF-Paper 1.0\nTitle: Damaged\nHandle: RePEc:aaa:s:0\n")
    for _ in range(2):
        answer = world.ask("ListRecords", metadataPrefix="oai_dc")
        assert len(list(answer.iterfind(".//{*}record"))) == 9
    remedy = "until it is restored: 'archec verify --repair-from COPY'"
    assert len(caplog.messages) == 4
    assert caplog.messages[0].startswith(f"{path}: has sha256 ")
    assert caplog.messages[0].endswith(f"; the records of RePEc:aaa:s:0 lack authors and files {remedy}")
    missing = world.layout.root / world.layout.path(1_200_000_000, "RePEc:aaa:s:1")
    assert caplog.messages[1] == f"{missing}: is missing; the records of RePEc:aaa:s:1 lack authors and files {remedy}"
    assert caplog.messages[3] == "further templates that cannot be read are not logged: 'archec verify' names them"


def test_a_lack_of_open_files_makes_no_record_without_authors(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A harvester would keep it."""
    world.show(paper("RePEc:aaa:s:1", 0))

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("archec.store.reader.os.open", refuse)
        with pytest.raises(StorageFailed, match="Too many open files"):
            world.raw([("verb", "ListRecords"), ("metadataPrefix", "oai_dc")])
    assert world.ask("ListRecords", metadataPrefix="oai_dc").findtext(".//{*}title") == "About RePEc:aaa:s:1"


def test_a_damaged_template_makes_no_record(world: World) -> None:
    """Its bytes are not those of the catalogue, which knows the title."""
    world.show(paper("RePEc:aaa:s:1", 0))
    path = world.layout.root / world.layout.path(1_200_000_000, "RePEc:aaa:s:1")
    path.parent.mkdir(parents=True)
    path.write_text("Template-Type: ReDIF-Paper 1.0\nTitle: Damaged\nHandle: RePEc:aaa:s:1\n")
    answer = world.ask("GetRecord", metadataPrefix="oai_dc", identifier=f"oai:{DOMAIN}:RePEc:aaa:s:1")
    assert answer.findtext(".//{*}title") == "About RePEc:aaa:s:1"
    answer = world.ask("GetRecord", metadataPrefix="redif", identifier=f"oai:{DOMAIN}:RePEc:aaa:s:1")
    assert [one.get("altered") for one in answer.iterfind(".//{*}originDescription")] == ["true"]
