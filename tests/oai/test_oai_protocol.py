"""Every rule of the protocol that providers break; the numbers are those of its list in docs/oai.md."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import msgspec
import pytest
from lxml import etree
from oai_support import BASE, DOMAIN, NOON, NS, OAI, SCHEMAS, WITHOUT, World, checked, code, file, paper, schema, texts

from archec.config import OaiConfig
from archec.errors import ConfigError
from archec.oai.request import Argument, parse_arguments
from archec.oai.token import load_secret
from archec.tist import iso

TOBI = f"oai:{DOMAIN}:RePEc:aaa:wpaper:1"
LOST = f"oai:{DOMAIN}:RePEc:aaa:wpaper:3"


def request_of(root: etree._Element) -> dict[str, str]:
    found = root.find(f"{OAI}request")
    assert found is not None
    assert found.text == BASE
    return {str(name): str(value) for name, value in found.attrib.items()}


def test_the_schemas_are_at_hand() -> None:
    if not SCHEMAS.is_dir():
        pytest.skip(WITHOUT)
    assert schema() is not None


# -- the six verbs --------------------------------------------------------------------------------


def test_identify(small: World) -> None:
    root = small.ask("Identify")
    assert texts(root, ".//o:Identify/o:baseURL") == [BASE]
    assert texts(root, ".//o:repositoryName") == ["Test archive"]
    assert texts(root, ".//o:adminEmail") == ["admin@example.org"]
    assert texts(root, ".//o:deletedRecord") == ["persistent"]
    assert texts(root, ".//o:granularity") == ["YYYY-MM-DDThh:mm:ssZ"]
    assert texts(root, ".//o:earliestDatestamp") == [iso(NOON)]
    assert texts(root, ".//o:responseDate") == [iso(int(small.clock()))]


def test_get_record(small: World) -> None:
    root = small.ask("GetRecord", identifier=TOBI, metadataPrefix="oai_dc")
    assert texts(root, ".//o:header/o:identifier") == [TOBI]
    assert texts(root, ".//dc:title") == ["Paper 1"]
    assert texts(root, ".//o:setSpec") == ["archive:aaa:wpaper", "RePEc:aaa:wpaper", "type:paper"]
    assert request_of(root) == {"verb": "GetRecord", "identifier": TOBI, "metadataPrefix": "oai_dc"}


def test_lists_agree(small: World) -> None:
    records = [one for root in small.walk("ListRecords", metadataPrefix="redif") for one in root.iter(f"{OAI}header")]
    headers = [
        one for root in small.walk("ListIdentifiers", metadataPrefix="redif") for one in root.iter(f"{OAI}header")
    ]
    assert list(map(etree.tostring, records)) == list(map(etree.tostring, headers))
    assert len(records) == 11


def test_list_metadata_formats(small: World) -> None:
    every = small.ask("ListMetadataFormats")
    assert texts(every, ".//o:metadataPrefix") == ["oai_dc", "redif", "amf"]
    assert texts(every, ".//o:schema")[1] == f"{BASE}/redif.xsd"
    fobi = texts(small.ask("ListIdentifiers", metadataPrefix="oai_dc", set="mim"), ".//o:identifier")[0]
    assert texts(small.ask("ListMetadataFormats", identifier=fobi), ".//o:metadataPrefix") == ["oai_dc", "redif"]
    assert code(small.ask("ListMetadataFormats", identifier=f"oai:{DOMAIN}:nothing")) == "idDoesNotExist"


def test_list_sets(small: World) -> None:
    root = small.ask("ListSets")
    found = dict(zip(texts(root, ".//o:setSpec"), texts(root, ".//o:setName"), strict=True))
    assert found["RePEc:aaa"] == found["archive:aaa"] == "The Triple A Archive"
    assert found["archive:aaa:wpaper"] == "Working Papers"
    assert {"dom:org:nber:www", "mim:application:pdf", "mim:image:svg!2Bxml", "type:article"} <= set(found)
    assert found["mim:image:svg!2Bxml"] == "Files of type image/svg+xml"
    assert list(found) == sorted(found)


# -- arguments ------------------------------------------------------------------------------------

BAD: list[tuple[str, str]] = [
    ("", "badVerb"),
    ("junk", "badVerb"),
    ("verb=", "badVerb"),
    ("verb=junk", "badVerb"),
    ("verb=identify", "badVerb"),
    ("verb=Identify&verb=Identify", "badVerb"),
    ("verb=Identify&verb=ListSets", "badVerb"),
    ("VERB=Identify", "badVerb"),
    ("verb=%FFIdentify", "badVerb"),
    ("verb=Identify&junk=1", "badArgument"),
    ("verb=Identify&identifier=oai:a.b:c", "badArgument"),
    ("verb=GetRecord&metadataPrefix=oai_dc", "badArgument"),
    (f"verb=GetRecord&identifier={TOBI}", "badArgument"),
    (f"verb=GetRecord&identifier={TOBI}&identifier={TOBI}&metadataPrefix=oai_dc", "badArgument"),
    (f"verb=GetRecord&identifier={TOBI}&metadataPrefix=oai_dc&metadataPrefix=redif", "badArgument"),
    (f"verb=GetRecord&identifier={TOBI}&metadataPrefix=oai_dc&set=type", "badArgument"),
    (f"verb=GetRecord&identifier={TOBI}&metadataPrefix=", "badArgument"),
    ("verb=GetRecord&identifier=&metadataPrefix=oai_dc", "badArgument"),
    ('verb=GetRecord&identifier=invalid"id&metadataPrefix=oai_dc', "badArgument"),
    ("verb=GetRecord&identifier=oai:a.b:%0B&metadataPrefix=oai_dc", "badArgument"),
    ("verb=GetRecord&identifier=oai:a.b:%E4&metadataPrefix=oai_dc", "badArgument"),
    ("verb=GetRecord&identifier=oai:a.b:%00&metadataPrefix=oai_dc", "badArgument"),
    ("verb=GetRecord&identifier=oai:a.b:c&metadataPrefix=oai_dc", "idDoesNotExist"),
    (f"verb=GetRecord&identifier={TOBI}x&metadataPrefix=oai_dc", "idDoesNotExist"),
    (f"verb=GetRecord&identifier={TOBI}&metadataPrefix=mods", "cannotDisseminateFormat"),
    ("verb=ListRecords&metadataPrefix=mods", "cannotDisseminateFormat"),
    ("verb=ListIdentifiers&metadataPrefix=mods", "cannotDisseminateFormat"),
    ("verb=ListRecords", "badArgument"),
    ("verb=ListRecords&metadataPrefix=oai%20dc", "badArgument"),
    ("verb=ListRecords&metadataPrefix=oai_dc&metadataPrefix=oai_dc", "badArgument"),
    ("verb=ListRecords&metadataPrefix=oai_dc&set=", "badArgument"),
    ("verb=ListRecords&metadataPrefix=oai_dc&set=a::b", "badArgument"),
    ("verb=ListRecords&metadataPrefix=oai_dc&set=really_wrong_set", "noRecordsMatch"),
    ("verb=ListRecords&metadataPrefix=oai_dc&set=archive:zzz", "noRecordsMatch"),
    ("verb=ListRecords&metadataPrefix=oai_dc&identifier=oai:a.b:c", "badArgument"),
    ("verb=ListRecords&metadataPrefix=oai_dc&resumptionToken=junk", "badArgument"),
    ("verb=ListRecords&resumptionToken=junk&until=2000-02-05", "badArgument"),
    ("verb=ListRecords&resumptionToken=junk&resumptionToken=junk", "badArgument"),
    ("verb=ListRecords&resumptionToken=", "badArgument"),
    ("verb=ListRecords&resumptionToken=junk", "badResumptionToken"),
    ("verb=ListIdentifiers&resumptionToken=%E2%82%AC", "badResumptionToken"),
    ("verb=ListIdentifiers&resumptionToken=%01", "badArgument"),
    ("verb=ListSets&resumptionToken=junk", "badResumptionToken"),
    ("verb=ListSets&metadataPrefix=oai_dc", "badArgument"),
    ("verb=GetRecord&resumptionToken=junk", "badArgument"),
    ("verb=ListIdentifiers&until=junk", "badArgument"),
    *(
        (f"verb=ListRecords&metadataPrefix=oai_dc&{end}={date}", "badArgument")
        for end in ("from", "until")
        for date in (
            "junk", "", "2020", "2020-01", "20200101", "2020-1-1", "2020-02-30", "2019-02-29", "2020-13-01",
            "0000-01-01",
            "2020-01-01T00:00:00", "2020-01-01T00:00:00.5Z", "2020-01-01T00:00:00%2B01:00", "2020-01-01T00:00Z",
            "2020-01-01T24:00:00Z", "2020-01-01T00:00:60Z", "2020-01-01%2000:00:00Z", "2020-01-01t00:00:00z",
            "%D9%A2%D9%A0%D9%A2%D9%A0-01-01", "-2020-01-01", "2020-01-01Z",
        )
    ),
    ("verb=ListRecords&metadataPrefix=oai_dc&from=2002-02-05&until=2002-02-06T05:35:00Z", "badArgument"),
    ("verb=ListRecords&metadataPrefix=oai_dc&from=2002-02-05T00:00:00Z&until=2002-02-06", "badArgument"),
    ("verb=ListRecords&metadataPrefix=oai_dc&from=2002-02-06&until=2002-02-05", "badArgument"),
    ("verb=ListRecords&metadataPrefix=oai_dc&until=1999-01-01", "noRecordsMatch"),
    ("verb=ListRecords&metadataPrefix=oai_dc&from=2999-01-01", "noRecordsMatch"),
    ("&".join(["verb=Identify"] + [f"a{n}=1" for n in range(2000)]), "badArgument"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), BAD, ids=lambda text: text[:70])
def test_errors(small: World, given: str, expected: str) -> None:
    root = checked(small.raw(parse_arguments(given.encode())))
    assert code(root) == expected
    pairs = dict(parse_arguments(given.encode()))
    # 3: all arguments are told back, but after badVerb and badArgument.
    assert request_of(root) == ({} if expected in ("badVerb", "badArgument") else pairs)


def test_right_arguments_are_told_back_escaped(small: World) -> None:
    hostile = "oai:a.b:it's;/?:@&=+$,'%3C%22"
    pairs: list[Argument] = [("verb", "GetRecord"), ("identifier", hostile), ("metadataPrefix", "oai_dc")]
    root = checked(small.raw(pairs))
    assert request_of(root)["identifier"] == hostile
    token = "<\"&'>\n\t]]>"
    assert request_of(small.ask("ListRecords", resumptionToken=token))["resumptionToken"] == token


def test_a_form_is_read_as_a_query_is() -> None:
    assert parse_arguments(b"a=1&b=%20+x&&c&=d&a=2") == [("a", "1"), ("b", "  x"), ("c", ""), ("", "d"), ("a", "2")]
    assert parse_arguments(b"a=%ff&%ff=1") == [("a", None), (None, "1")]


# -- dates ----------------------------------------------------------------------------------------


def test_both_ends_are_inclusive_to_the_second(small: World) -> None:
    first, second = iso(NOON), iso(NOON + 65)
    at_first = small.identifiers(from_=first, until=first)
    assert len(at_first) == 9
    assert len(small.identifiers(until=iso(NOON + 62))) == 9
    assert small.identifiers(from_=iso(NOON + 1)) == small.identifiers(from_=second, until=second)
    assert LOST in small.identifiers(from_=second)
    assert code(small.ask("ListRecords", metadataPrefix="oai_dc", until=iso(NOON - 1))) == "noRecordsMatch"


def test_a_day_ends_with_its_last_second(small: World) -> None:
    day = iso(NOON)[:10]
    assert len(small.identifiers(from_=day, until=day)) == 11
    before = iso(NOON - 86400)[:10]
    assert code(small.ask("ListRecords", metadataPrefix="oai_dc", until=before)) == "noRecordsMatch"
    assert len(small.identifiers(from_=before)) == 11


def test_earliest_datestamp_is_a_lower_bound(small: World) -> None:
    (earliest,) = texts(small.ask("Identify"), ".//o:earliestDatestamp")
    stamps = texts(small.ask("ListIdentifiers", metadataPrefix="oai_dc"), ".//o:datestamp")
    assert min(stamps) >= earliest
    assert stamps == sorted(stamps)
    small.use(dataclasses.replace(small.config.oai, earliestDatestamp="2001-01-01T00:00:00Z"))
    assert texts(small.ask("Identify"), ".//o:earliestDatestamp") == ["2001-01-01T00:00:00Z"]
    small.use(dataclasses.replace(small.config.oai, earliestDatestamp="2999-01-01T00:00:00Z"))
    assert texts(small.ask("Identify"), ".//o:earliestDatestamp") == [earliest]


def test_an_empty_repository(world: World) -> None:
    world.show()
    assert texts(world.ask("Identify"), ".//o:earliestDatestamp") == [iso(NOON + 3)]
    assert code(world.ask("ListRecords", metadataPrefix="oai_dc")) == "noRecordsMatch"
    assert code(world.ask("ListSets")) == "noSetHierarchy"


# -- lists in parts -------------------------------------------------------------------------------


def test_tokens_of_a_list_that_was_cut(small: World) -> None:
    small.use(dataclasses.replace(small.config.oai, numOfRecords=4))
    roots = list(small.walk("ListRecords", metadataPrefix="oai_dc"))
    tokens = [root.find(f"{OAI}ListRecords/{OAI}resumptionToken") for root in roots]
    assert [token.get("cursor") for token in tokens if token is not None] == ["0", "4", "8"]
    assert {token.get("completeListSize") for token in tokens if token is not None} == {"11"}
    first, _, last = tokens
    assert first is not None
    assert last is not None
    assert not last.text
    assert last.get("expirationDate") is None
    assert first.get("expirationDate") == iso(int(small.clock()) + 86400)
    assert request_of(roots[1]) == {"verb": "ListRecords", "resumptionToken": first.text}
    assert len({one for root in roots for one in texts(root, ".//o:header/o:identifier")}) == 11


def test_a_list_that_was_never_cut_has_no_token(small: World) -> None:
    assert small.ask("ListRecords", metadataPrefix="oai_dc").find(f".//{OAI}resumptionToken") is None
    small.use(dataclasses.replace(small.config.oai, numOfRecords=11))
    assert small.ask("ListRecords", metadataPrefix="oai_dc").find(f".//{OAI}resumptionToken") is None


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 50])
def test_sets_in_parts(small: World, size: int) -> None:
    whole = texts(small.ask("ListSets"), ".//o:setSpec")
    small.use(dataclasses.replace(small.config.oai, numOfRecords=size))
    parts = [texts(root, ".//o:setSpec") for root in small.walk("ListSets")]
    assert [one for part in parts for one in part] == whole
    assert all(len(part) <= size for part in parts)


def test_a_page_ends_early_where_records_are_large(small: World) -> None:
    small.use(dataclasses.replace(small.config.oai, max_page=2000))
    roots = list(small.walk("ListRecords", metadataPrefix="redif"))
    assert len(roots) > 4
    found = [one for root in roots for one in texts(root, ".//o:header/o:identifier")]
    assert len(found) == len(set(found)) == 11


# -- deletions, sets ------------------------------------------------------------------------------


def test_deleted_records_are_headers_everywhere(small: World) -> None:
    for root in (
        small.ask("GetRecord", identifier=LOST, metadataPrefix="oai_dc"),
        small.ask("ListRecords", metadataPrefix="oai_dc", from_=iso(NOON + 1), set="archive:aaa"),
    ):
        (record,) = root.iter(f"{OAI}record")
        assert [child.tag for child in record] == [f"{OAI}header"]
        assert record[0].get("status") == "deleted"
    full = small.ask("ListIdentifiers", metadataPrefix="redif")
    assert len(full.findall(".//o:header[@status='deleted']", NS)) == 2


def test_a_record_that_comes_back(small: World) -> None:
    small.show(msgspec.structs.replace(paper("RePEc:aaa:wpaper:3", 0, title="Paper 3 again")))
    root = small.ask("GetRecord", identifier=LOST, metadataPrefix="oai_dc")
    assert texts(root, ".//dc:title") == ["Paper 3 again"]
    assert len(small.identifiers()) == 11


def test_a_set_has_the_items_of_the_sets_below_it(small: World) -> None:
    counts = {
        name: len(small.identifiers(set=name)) for name in ("archive", "RePEc", "archive:aaa", "RePEc:aaa:wpaper")
    }
    assert counts == {"archive": 8, "RePEc": 8, "archive:aaa": 7, "RePEc:aaa:wpaper": 6}
    assert len(small.identifiers(set="dom:org")) == len(small.identifiers(set="mim")) == 3
    assert len(small.identifiers(set="dom:org:nber:www:!3A8080")) == 1


def test_without_sets(small: World) -> None:
    small.use(dataclasses.replace(small.config.oai, sets=()))
    small.show()
    assert code(small.ask("ListSets")) == "noSetHierarchy"
    assert code(small.ask("ListRecords", metadataPrefix="oai_dc", set="type")) == "noSetHierarchy"
    assert texts(small.ask("ListIdentifiers", metadataPrefix="oai_dc"), ".//o:setSpec") == []


def test_only_the_trees_that_are_served(small: World) -> None:
    small.use(dataclasses.replace(small.config.oai, sets=("RePEc", "mim")))
    small.show()
    heads = {spec.partition(":")[0] for spec in texts(small.ask("ListSets"), ".//o:setSpec")}
    assert heads == {"RePEc", "mim"}
    listed = {
        spec.partition(":")[0] for spec in texts(small.ask("ListIdentifiers", metadataPrefix="oai_dc"), ".//o:setSpec")
    }
    assert listed == {"RePEc", "mim"}
    assert code(small.ask("ListRecords", metadataPrefix="oai_dc", set="type:paper")) == "noRecordsMatch"


@pytest.mark.parametrize(("items", "count"), [("tobi", 8), ("fobi", 3), ("both", 11)])
def test_items_that_are_served(small: World, items: str, count: int) -> None:
    small.use(dataclasses.replace(small.config.oai, items=items))
    found = small.identifiers()
    assert len(found) == count
    listed = {one.partition(":")[0] for one in texts(small.ask("ListSets"), ".//o:setSpec")}
    assert ("type" in listed, "mim" in listed) == (items != "fobi", items != "tobi")  # no sets that are never filled
    if items == "fobi":
        assert code(small.ask("ListRecords", metadataPrefix="amf")) == "noRecordsMatch"
        assert code(small.ask("GetRecord", identifier=TOBI, metadataPrefix="oai_dc")) == "idDoesNotExist"


@pytest.mark.parametrize("prefix", ["oai_dc", "redif", "amf"])
def test_payloads_name_their_own_namespace_and_schema(small: World, prefix: str) -> None:
    """17: every payload's root has the schemaLocation pair of its namespace, as ListMetadataFormats tells it."""
    told = small.ask("ListMetadataFormats")
    (form,) = [one for one in told.iter(f"{OAI}metadataFormat") if one.findtext("{*}metadataPrefix") == prefix]
    pair = [str(form.findtext("{*}metadataNamespace")), str(form.findtext("{*}schema"))]
    payloads = [
        one[0] for root in small.walk("ListRecords", metadataPrefix=prefix) for one in root.iter(f"{OAI}metadata")
    ]
    assert payloads
    for one in payloads:
        assert etree.QName(one).namespace == pair[0]
        assert str(one.get("{http://www.w3.org/2001/XMLSchema-instance}schemaLocation")).split() == pair


def test_an_about_is_never_with_a_deleted_record(small: World) -> None:
    for root in small.walk("ListRecords", metadataPrefix="redif"):
        for one in root.iter(f"{OAI}about"):
            parent = one.getparent()
            assert parent is not None
            assert parent[0].get("status") is None


def test_a_format_for_templates_only(small: World) -> None:
    assert len(small.identifiers(metadataPrefix="amf")) == 8
    fobi = small.identifiers(set="mim")[0]
    assert code(small.ask("GetRecord", identifier=fobi, metadataPrefix="amf")) == "cannotDisseminateFormat"


# -- text -----------------------------------------------------------------------------------------


def test_what_xml_cannot_hold_is_cut_out(world: World) -> None:
    title = "".join(map(chr, range(32))) + "\x7f\x85\u2028\ufffe\uffff\U0001f4dc <&>\"' ]]>"
    world.show(paper("RePEc:aaa:wpaper:<\x0b&\u00e9%\"'\ud7ff", 0, title=title), file("http://h/%0b?a=<b>&c=\u00e9", 0))
    (root,) = world.walk("ListRecords", metadataPrefix="oai_dc")
    assert texts(root, ".//dc:title")[0].endswith("\U0001f4dc <&>\"' ]]>")
    (first,) = [one for one in texts(root, ".//o:header/o:identifier") if "RePEc" in one]
    assert first == f"oai:{DOMAIN}:RePEc:aaa:wpaper:%3C%0B&%C3%A9%25%22'%ED%9F%BF"
    again = world.ask("GetRecord", identifier=first, metadataPrefix="redif")
    assert texts(again, ".//o:header/o:identifier") == [first]


@pytest.mark.parametrize("character", ["\ufdd0", "\ufdef", "\U0001fffe", "\U0010ffff"])
def test_noncharacters_are_cut_out(world: World, character: str) -> None:
    """XML allows them, but HTTP::OAI fails at the page, and its harvest ends."""
    world.show(paper("RePEc:aaa:wpaper:1", 0, title=f"a{character}\U0001fffdb\U00020000"))
    (root,) = world.walk("ListRecords", metadataPrefix="oai_dc")
    assert texts(root, ".//dc:title") == ["a\U0001fffdb\U00020000"]
    record = f"oai:{DOMAIN}:RePEc:aaa:wpaper:1"
    assert character not in world.raw(
        [("verb", "GetRecord"), ("metadataPrefix", "redif"), ("identifier", record)]
    ).decode()


# -- what Identify tells --------------------------------------------------------------------------


def test_descriptions(world: World) -> None:
    own = '<a xmlns="urn:x:y"><b>&lt;</b></a>'
    (world.folder / "more.xml").write_text("<!-- x --><eprints xmlns='http://www.openarchives.org/OAI/1.1/eprints'>"
                                           "<metadataPolicy/><dataPolicy/></eprints>")  # fmt: skip
    settings = OaiConfig(
        friends=("http://other.example.org/oai",),
        content="Papers & files",
        metadataPolicy="http://example.org/policy",
        rights="https://creativecommons.org/publicdomain/zero/1.0",
        description=("more.xml",),
    )
    world.use(settings)
    root = world.ask("Identify")
    kinds = [etree.QName(one[0]).localname for one in root.iter(f"{OAI}description")]
    assert kinds == ["oai-identifier", "eprints", "friends", "rightsManifest", "eprints"]
    assert own not in etree.tostring(root, encoding="unicode")


def test_a_secret_that_cannot_be_used_is_named_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "oai.secret"
    for damage in (lambda: path.write_text("short"), path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("x")):
        damage()
        with pytest.raises(ConfigError, match=f"{path}: ") as raised:
            load_secret(path, None)
        assert raised.value.hint.startswith("move it away: a new one is created")
        path.rename(tmp_path / f"moved-{len(os.listdir(tmp_path))}")
    assert load_secret(path, None) == load_secret(path, None)
