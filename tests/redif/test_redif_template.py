"""Templates parsed: types, fields, continuation lines, clusters, as_json."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archec.redif.files import Blob
from archec.redif.problems import CODES, Problem
from archec.redif.scan import scan
from archec.redif.schema import KINDS, REQUIRED, kind_of, spec_of
from archec.redif.template import Template, as_json, fobi_of, parse, parse_blob

PAPER = """Template-Type: ReDIF-Paper 1.0
Author-Name: Ada Byron
Author-X-Name-First: Ada
Author-Workplace-Name: University of A
Author-WorkPlace-Postal: Street 1,
 Town
Author-Workplace-Name: Institute of B
Author-Email: ada@example.org
Author-Name: Charles Babbage
Title: On Engines
Abstract: They compute.
 Purpose: to compute.
Purpose: not a field.
https://example.org is none either

after a blank line
# a comment
Number:
 12
X-Local: anything
File-URL: http://example.org/
  1.pdf
File-Format: application/pdf
File-Function: main
File-URL: http://example.org/2.html
File-Format: text/html
Book-File-URL: ftp://example.org/3
DOI: 10.1/1
Handle: RePEc:aaa:ssssss:1
"""


def test_types_of_any_length_are_forgotten() -> None:
    tracemalloc.start()
    try:
        for n in range(20):
            assert parse(f"Template-Type: {n}{'x' * 1_000_000}\nHandle: RePEc:aaa:sss:1\n").id
        assert tracemalloc.get_traced_memory()[0] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_paper() -> None:
    paper = parse(PAPER, path="RePEc/aaa/ssssss/1.rdf", first_line=11)
    assert (paper.kind, paper.version, paper.family) == ("ReDIF-Paper", "1.0", "work")
    assert (paper.handle, paper.id, paper.title) == ("RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1", "On Engines")
    assert paper.get("Abstract") == (
        "They compute. Purpose: to compute. Purpose: not a field. https://example.org is none either after a blank line"
    )
    assert paper.get("Number") == "12"
    assert paper.get("DOI") == "10.1/1"
    assert paper.get("X-Local") == "anything"
    assert paper.all("Author-Name") == ("Ada Byron", "Charles Babbage")
    assert paper.problems == ()
    lines = PAPER.split("\n")
    for field in paper.fields:
        assert lines[field.line - 11].lower().startswith(field.name.lower())


def test_clusters_nest() -> None:
    paper = parse(PAPER)
    ada, charles = paper.clusters_of("Author")
    assert (ada.role, ada.name, ada.get("Email"), charles.name) == (
        "person",
        "Ada Byron",
        "ada@example.org",
        "Charles Babbage",
    )
    assert ada.get("X-Name-First") == "Ada"
    assert [(c.role, c.prefix, c.name) for c in ada.clusters] == [
        ("organisation", "Author-Workplace", "University of A"),
        ("organisation", "Author-Workplace", "Institute of B"),
    ]
    assert ada.clusters[0].get("Postal") == "Street 1, Town"
    assert not charles.clusters
    assert [c.prefix for c in paper.clusters] == ["Author", "Author", "File", "File", "Book-File"]


def test_refipos() -> None:
    assert [tuple(refipo) for refipo in parse(PAPER).refipos] == [
        ("http://example.org/1.pdf", "application/pdf", "main", "", ""),
        ("http://example.org/2.html", "text/html", "", "", ""),
        ("ftp://example.org/3", "", "", "", ""),
    ]


def test_clusters_do_not_share_what_they_hold() -> None:
    one, two = parse(PAPER), parse(PAPER)
    assert one == two
    assert all(a.rows is not b.rows for a, b in zip(one.clusters, two.clusters, strict=True))


def test_a_password_is_not_in_a_refipo() -> None:
    refipo = parse("Template-Type: ReDIF-Paper\nFile-URL: http://user: secret@example.org/x\n").refipos[0]
    assert refipo.url_raw == "http://example.org/x"


TYPES = {
    "Series": "Name: A Series\nProvider-Name: P\nProvider-Homepage: http://p/\nMaintainer-Email: m@p\nType: x\n",
    "Archive": "Name: An Archive\nURL: http://a/\nMaintainer-Email: m@p\n",
    "Person": "Name-Full: Ada Byron\nName-First: Ada\nWorkplace-Name: A\nWorkplace-Name: B\nAuthor-Paper: RePEc:x\n",
    "Institution": "Primary-Name: U\nPrimary-Location: Here\nSecondary-Name: D\nSecondary-Phone: 1\n",
    "Software": "Title: A Program\nRequires: Stata\nSize: 12\nAuthor-Name: X\n",
    "Book": "Title: A Book\nEditor-Name: E\nEditor-Workplace-Name: W\nProvider-Name: P\nHasChapter: RePEc:x\n",
    "Chapter": "Title: A Chapter\nBook-Title: A Book\nIn-Book: RePEc:x\nAuthor-Name: X\n",
    "Article": "Title: An Article\nJournal: J\nVolume: 1\nPages: 1-2\nAuthor-Name: X\n",
}


@pytest.mark.parametrize("kind", TYPES)
def test_each_type(kind: str) -> None:
    found = parse(f"Template-Type: ReDIF-{kind} 1.0\n{TYPES[kind]}Handle: RePEc:aaa:ssssss:1\n")
    assert found.kind == f"ReDIF-{kind}"
    assert found.title == TYPES[kind].split("\n")[0].partition(": ")[2]
    assert [f.name for f in found.fields] == [
        "Template-Type", *(line.partition(":")[0] for line in TYPES[kind].splitlines()), "Handle"
    ]  # fmt: skip
    assert not found.problems
    expected = {
        "Series": ["Provider"],
        "Person": ["Workplace", "Workplace"],
        "Institution": ["Primary", "Secondary"],
        "Book": ["Editor", "Provider"],
        "Archive": [],
    }
    assert [cluster.prefix for cluster in found.clusters] == expected.get(kind, ["Author"])
    for names in REQUIRED[found.kind]:
        assert any(found.get(name) for name in names)


def test_every_type_is_there() -> None:
    assert {f"redif-{word}" for word in KINDS} == {name.lower() for name in REQUIRED}


@pytest.mark.parametrize(
    ("raw", "name", "version"),
    [
        ("ReDIF-Paper 1.0", "ReDIF-Paper", "1.0"),
        ("redif-paper 1.0", "ReDIF-Paper", "1.0"),
        ("REDIF-ARTICLE", "ReDIF-Article", ""),
        ("ReDIF-Article 1.", "ReDIF-Article", "1"),
        ("ReDIF-Archive 1.0<br />", "ReDIF-Archive", "1.0"),
        ("ReDIF-Book", "ReDIF-Book", ""),
        ("edif-paper 1.0", "edif-paper 1.0", ""),
        ("redif-ppaer 1.0", "redif-ppaer 1.0", ""),
        ("ReDIF-Mirror 1.0", "ReDIF-Mirror 1.0", ""),
        ("", "", ""),
    ],
)
def test_types_as_they_are_written(raw: str, name: str, version: str) -> None:
    kind = kind_of(raw)
    assert (kind.name, kind.version) == (name, version)
    assert (kind.family != "other") is (name in REQUIRED)


def test_an_unknown_type_knows_every_word() -> None:
    found = parse("Template-Type: ReDIF-Mirror 1.0\nmachine: x\nLife: 3\nhttps://example.org/\nFile-URL: http://a/\n")
    assert [(f.name, f.value) for f in found.fields][1:] == [
        ("Machine", "x"),
        ("Life", "3 https://example.org/"),
        ("File-URL", "http://a/"),
    ]
    assert [p.code for p in found.problems] == ["no-handle"]


def test_a_field_before_its_key_opens_a_cluster() -> None:
    found = parse(
        "Template-Type: ReDIF-Paper 1.0\nAuthor-Email: a@b\nAuthor-Name: A\nAuthor-Workplace-Name: W\nHandle: a:1\n"
    )
    assert [(c.prefix, c.name, c.get("Email")) for c in found.clusters] == [("Author", "", "a@b"), ("Author", "A", "")]
    assert [(p.code, p.line) for p in found.problems] == [("cluster-without-key", 2)]
    orphan = parse("Template-Type: ReDIF-Paper 1.0\nAuthor-Workplace-Name: W\nHandle: a:1\n")
    assert [(c.prefix, c.clusters[0].name) for c in orphan.clusters] == [("Author", "W")]


def test_conflict_markers_are_not_part_of_a_value() -> None:
    text = "Template-Type: ReDIF-Paper 1.0\nFile-URL: http://a/1\n<<<<<<< HEAD\nFile-Format: a/b\n"
    text += "=======\nFile-Format: c/d\n>>>>>>> 123\nHandle: a:1\n"
    found = parse(text, path="x", first_line=5)
    assert found.refipos[0].url_raw == "http://a/1"
    assert found.refipos[0].format == "a/b"
    assert [(p.code, p.line) for p in found.problems] == [("conflict-marker", 7)]


def test_comments_alone_are_no_value() -> None:
    found = parse("Template-Type: ReDIF-Paper 1.0\nAbstract:\n# none\nKeywords: # of things\nHandle: a:1\n")
    assert found.get("Abstract") == ""
    assert found.get("Keywords") == "# of things"


def test_as_json_is_json() -> None:
    document = json.loads(json.dumps(as_json(parse(PAPER, path="x"))))
    assert document["id"] == "RePEc:aaa:ssssss:1"
    assert document["clusters"][0]["clusters"][0]["fields"][0] == {
        "name": "Author-Workplace-Name",
        "value": "University of A",
    }
    assert document["refipos"][0] == {
        "url": "http://example.org/1.pdf",
        "format": "application/pdf",
        "function": "main",
    }


def test_parse_blob_is_scan_and_parse() -> None:
    data = (
        "junk: x\n" + PAPER + "\n# between\n\n" + PAPER.replace("RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:2")
    ).encode()
    same(Blob("aaa/1.rdf", data))
    same(Blob("aaa/1.rdf", data.replace(b"\n", b"\r\n"), first_line=100))
    assert list(parse_blob(Blob("aaa/1.rdf", b""))) == []
    assert list(parse_blob(Blob("aaa/1.rdf", b"<html>"))) == []


def same(blob: Blob) -> None:
    def content(template: Template) -> Template:
        return template._replace(raws=())

    raws = scan(blob).templates
    parsed = list(parse_blob(blob))
    assert [content(t) for t in parsed] == [
        content(parse(raw.text.decode(), path=blob.path, first_line=raw.line)) for raw in raws
    ]
    assert [(t.handle, t.id, t.line) for t in parsed] == [(raw.handle, raw.id, raw.line) for raw in raws]


LINES = st.sampled_from(
    [
        *PAPER.splitlines(),
        *(
            "Template-Type: ReDIF-Series 1.0",
            "template-type: odd",
            "Handle:",
            "Handle: RePEc:x:y:1",
            " more",
            "RePEc:z",
            "",
        ),
        *(
            "# c",
            "<<<<<<< HEAD",
            ">>>>>>> x",
            "=======",
            "File-URL:",
            "Author-Email: x",
            "unknown: x",
            "a: //b",
            "\x1a",
        ),
    ]
)


@example(["template-type: odd", "Handle:", "RePEc:z"], "\n")
@example(["Handle:", "Purpose: not a field."], "\n")
@given(st.lists(LINES, max_size=12), st.sampled_from(["\n", "\r\n", "\r"]))
def test_both_ways_agree_on_anything(lines: list[str], end: str) -> None:
    same(Blob("aaa/1.rdf", end.join(["Template-Type: ReDIF-Paper 1.0", *lines]).encode()))


@given(st.text(max_size=200))
def test_nothing_is_ever_raised(text: str) -> None:
    for template in (parse(text), parse("Template-Type: ReDIF-Paper 1.0\n" + text)):
        assert len(template.fields) == len(template.names) == len(template.values) == len(template.raws)
        assert all(problem.code in CODES for problem in template.problems)
        json.dumps(as_json(template))


@pytest.mark.parametrize(
    ("family", "raw", "name"),
    [
        ("work", "AUTHOR-NAME", "Author-Name"),
        ("work", "classification-jel", "Classification-JEL"),
        ("work", "order-url", "Order-URL"),
        ("work", "x-code", "X-Code"),
        ("work", "author-workplace-name-english", "Author-Workplace-Name-English"),
        ("work", "software-file-url", "Software-File-URL"),
        ("work", "issn", "ISSN"),
    ],
)
def test_canonical_spellings(family: str, raw: str, name: str) -> None:
    spec = spec_of(family, raw)  # type: ignore[arg-type]
    assert spec is not None
    assert spec.name == name


@pytest.mark.parametrize("raw", ["Purpose", "https", "namely", "goods", "Name", "Machine", "Maintainer"])
def test_words_that_are_no_fields_of_a_work(raw: str) -> None:
    assert spec_of("work", raw) is None


def test_many_unknown_words_take_no_time() -> None:
    text = "Template-Type: ReDIF-Paper 1.0\nAbstract: x\n" + "word: x\n" * 200_000 + "Handle: a:1\n"
    assert parse(text).id == "a:1"
    assert parse("Template-Type: ReDIF-Paper 1.0\nHandle: a:1\n" + "Author-Email: x\n" * 100_000).id == "a:1"


# -- refipos ----------------------------------------------------------------------------------------

START = "Template-Type: ReDIF-Paper 1.0\nTitle: x\n"


def fobis(text: str, path: str = "", first_line: int = 1) -> list[str | Problem]:
    """The fobis of a template and what is wrong with its other File-URLs, in order."""
    template = parse(text, path=path, first_line=first_line)
    pairs = zip(template.refipos, template.refipo_lines, strict=True)
    return [fobi_of(refipo, path, line, template.id) for refipo, line in pairs]


def test_urls_are_normalised() -> None:
    text = START + "File-URL: HTTP://Example.ORG:80/a/../b c.pdf#x\nFile-Format: application/pdf\nFile-Size: 12\n"
    text += "File-Restriction: none\nHandle: RePEc:aaa:ssssss:1\n"
    assert fobis(text) == ["http://example.org/bc.pdf"]
    assert [refipo[1:] for refipo in parse(text).refipos] == [("application/pdf", "", "12", "none")]


def test_without_file_urls() -> None:
    assert fobis(START) == []


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "empty-url"),
        ("file:///C:/x.pdf", "bad-url"),
        ("hhttp://example.org/", "bad-url"),
        ("www.example.org/x.pdf", "bad-url"),
        ("see the author", "bad-url"),
        ("http://", "bad-url"),
        ("mailto:someone@example.org", "bad-url"),
    ],
)
def test_bad_urls_have_handle_and_line(url: str, code: str) -> None:
    text = START + f"File-URL: {url}\nFile-Format: x\nFile-URL: http://example.org/\nHandle: RePEc:aaa:s:1\n"
    problem, url = fobis(text, "aaa/1.rdf", 10)
    assert url == "http://example.org/"
    assert isinstance(problem, Problem)
    assert (problem.path, problem.line, problem.code) == ("aaa/1.rdf", 12, code)
    assert "RePEc:aaa:s:1" in problem.message


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@example.org/x",
        "http://user: secret@example.org/x",
        "http://user:se/cret@example.org:x/",
        "http:user:secret@example.org",
        "hhttp://user:secret@example.org/",
        "user:secret@example.org",
        "ftp://user:sec@ret@exa mple.org/",
    ],
)
def test_passwords_are_never_shown(url: str) -> None:
    assert "sec" not in str(fobis(START + f"File-URL: {url}\nHandle: RePEc:aaa:s:1\n"))


PIECES = st.lists(
    st.sampled_from(
        [
            "File-URL: http://example.org/1",
            "File-URL:",
            "file-url: http://example.org/",
            "  2.pdf",
            "Purpose: x",
            "https://example.org/",
            "File-Format: application/pdf",
            "File-Size: 1",
            "Book-File-URL: ftp://example.org/",
            "Book-File-Function: f",
            "X-File-URL: http://example.org/local",
            "Abstract: y",
            "# c",
            "<<<<<<< START",
            "",
        ]
    ),
    max_size=10,
)


@given(PIECES, st.sampled_from(["ReDIF-Paper 1.0", "ReDIF-Series 1.0", "Odd"]))
def test_each_file_url_is_a_fobi_or_a_problem_in_its_line(pieces: list[str], kind: str) -> None:
    lines = [f"Template-Type: {kind}", *pieces, "Handle: a:1"]
    template = parse("\n".join([*lines, ""]))
    for refipo, line in zip(template.refipos, template.refipo_lines, strict=True):
        found = fobi_of(refipo, "", line, template.id)
        if isinstance(found, Problem):
            assert (found.code in ("empty-url", "bad-url"), found.line) == (True, line)
        else:
            assert found.startswith(("http", "ftp://"))
        assert "file-url" in lines[line - 1].lower() or line == 1


@given(st.text(max_size=100))
def test_any_text(text: str) -> None:
    fobis("Template-Type: x\nFile-URL: " + text)
    fobis(text + "\nfile-url")
