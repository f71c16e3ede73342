"""``archec redif`` as a whole: JSON, severity, summary by archive, reports; gathering odd handles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gather_support import Member, archec_inline, make, tarball, template

PAPER = (
    "Template-Type: ReDIF-Paper 1.0\nAuthor-Name: A\nTitle: <i>T</i>\nTitel: U\nCreation-Date: soon\n"
    "Handle: RePEc:{}:ssssss:1\n"
)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A file of each of two archives, with an error and a warning; and a web page of the second."""
    found = []
    for code in ("aaa", "bbb"):
        path = tmp_path / "RePEc" / code / "ssssss" / "1.rdf"
        path.parent.mkdir(parents=True)
        path.write_text(PAPER.format(code).replace("Author-Name: A\n", "" if code == "bbb" else "Author-Name: A\n"))
        found.append(path)
    found.append(found[-1].with_name("2.rdf"))
    found[-1].write_text("<html>Not found</html>")
    return found


def test_json_has_each_template_with_its_problems(files: list[Path], tmp_path: Path) -> None:
    done = archec_inline(None, "redif", "--json", *files, cwd=tmp_path)
    first, second, page, summary = (json.loads(line) for line in done.out.splitlines())
    assert (first["type"], first["id"]) == ("template", "RePEc:aaa:ssssss:1")
    assert [(p["code"], p["severity"], p["line"]) for p in first["problems"]] == [
        ("unknown-field", "warning", 4),
        ("bad-value", "warning", 5),
    ]
    assert "missing-field" in {p["code"] for p in second["problems"] if p["severity"] == "error"}
    assert (page["type"], page["code"], page["severity"]) == ("problem", "html-page", "error")
    assert summary["archives"]["aaa"] == {
        "templates": 1,
        "errors": 0,
        "warnings": 2,
        "codes": {"bad-value": 1, "unknown-field": 1},
    }
    assert (summary["archives"]["bbb"]["errors"], summary["archives"]["bbb"]["warnings"]) == (2, 2)
    assert "bbb: 1 template, 2 errors, 2 warnings" in done.err


def test_a_file_outside_repec_is_of_the_archive_of_its_handles(files: list[Path], tmp_path: Path) -> None:
    loose = [tmp_path / "xyz" / file.name for file in files[1:]]
    loose[0].parent.mkdir()
    for path, file in zip(loose, files[1:], strict=True):
        file.rename(path)
    done = archec_inline(None, "redif", "--json", *loose, cwd=tmp_path)
    archives = json.loads(done.out.splitlines()[-1])["archives"]
    assert {code: one["templates"] for code, one in archives.items()} == {"": 0, "bbb": 1}
    assert "?: 0 templates, 1 error" in done.err


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_a_report_to_send(files: list[Path], tmp_path: Path, name: str) -> None:
    files[0].write_text(PAPER.format("aaa").replace("soon", "<script>alert(1)</script>"))
    assert archec_inline(None, "redif", "--report", tmp_path / name, *files, cwd=tmp_path).code == 0
    text = (tmp_path / name).read_text()
    assert text.index("RePEc:aaa") < text.index("RePEc:bbb")
    assert "did you mean Title?" in text
    assert "2.rdf" in text
    assert "<script>" not in text


def test_a_report_is_html_or_markdown(files: list[Path], tmp_path: Path) -> None:
    assert archec_inline(None, "redif", "--report", tmp_path / "x.pdf", *files, cwd=tmp_path).code == 2


def test_handles_that_are_urls_are_counted(memory_folder: Callable[[], Path], tmp_path: Path) -> None:
    config = make(memory_folder() / "a")
    texts = [template(handle) for handle in ("http://127.0.0.1/x", "HTTPS:x", "ftp://h/y", "RePEc:aaa:sss:1")]
    path = tarball(tmp_path / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/1.rdf", "\n".join(texts).encode())])
    done = archec_inline(config, "gather", "-f", path, "--no-fetch", "--json")
    report = json.loads(done.out)
    assert (report["problems"]["by_code"], report["templates"]["without_handle"]) == ({"bad-handle": 3}, 3)
    assert report["tobis"]["new"] == 1


def test_a_malformed_handle_never_beats_a_good_one(memory_folder: Callable[[], Path], tmp_path: Path) -> None:
    config = make(memory_folder() / "a")
    good = template("RePEc:ura:sss:1", "good").encode()
    bad = template("RePEc:ura:sss:1<br />", "bad").encode()
    members = [Member("RePEc/ura/sss/9.rdf", bad), Member("RePEc/all/1.rdf", good)]
    members.append(Member("RePEc/ura/2.rdf", template("RePEc:ura:sss:2<br />", "alone").encode()))
    path = tarball(tmp_path / "RePEc_2001-01-01.tar", members)
    assert archec_inline(config, "gather", "-f", path, "--no-fetch").code == 0
    assert b"Title: good" in archec_inline(config, "get", "RePEc:ura:sss:1").out
    assert b"Title: alone" in archec_inline(config, "get", "RePEc:ura:sss:2").out
