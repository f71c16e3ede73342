"""``archec find``: which obis held some bytes or a text, from when to when."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from gather_site import Site, moved, page, pdf
from gather_support import Done, Member, archec_inline, make, run, tarball, template, write_papers

from archec.config import Config


def rows(done: Done) -> list[dict[str, object]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def archive(folder: Path) -> Config:
    """Texts that change and come back, and a file that two URLs lead to."""
    config = make(folder / "a", {"max_loss": "100%"})
    for month, title in ((1, "Early"), (2, "Late"), (3, "Early")):
        member = Member("RePEc/zzz/sss/1.rdf", template("RePEc:zzz:sss:1", title).encode())
        other = Member("RePEc/zzz/sss/2.rdf", template("RePEc:zzz:sss:2", "Early").encode())
        run(config, tarball(folder / f"RePEc_2001-0{month}-01.tar", [member, other]))
    return config


def test_the_bytes_of_a_file_wherever_they_were(archive: Config, folder: Path) -> None:
    text = template("RePEc:zzz:sss:1", "Early").rstrip("\n").encode() + b"\n"
    (folder / "x").write_bytes(text)
    found = rows(archec_inline(archive, "find", folder / "x", "--json"))
    assert [(row["id"], row["noted_time"], row["until_time"]) for row in found] == [
        ("RePEc:zzz:sss:1", "2001-01-01T00:00:00Z", "2001-02-01T00:00:00Z"),
        ("RePEc:zzz:sss:1", "2001-03-01T00:00:00Z", None),
    ]
    for row in found:
        assert (archive.store_path / str(row["path"])).read_bytes() == text
    for name, value in (("sha256", hashlib.sha256(text)), ("md5", hashlib.md5(text))):
        assert rows(archec_inline(archive, "find", f"--{name}", value.hexdigest().upper(), "--json")) == found
    shown = archec_inline(archive, "find", folder / "x").out.decode()
    assert "from 978307200 (2001-01-01T00:00:00Z) until 980985600" in shown
    assert "until now" in shown


def test_the_text_of_a_template_whatever_its_blanks(archive: Config, folder: Path) -> None:
    (folder / "x.rdf").write_text("# a comment\r\n" + template("RePEc:zzz:sss:1", "Late  ").replace("\n", "  \r\n\r\n"))
    (found,) = rows(archec_inline(archive, "find", "--text", folder / "x.rdf", "--json"))
    assert (found["id"], found["until_time"]) == ("RePEc:zzz:sss:1", "2001-03-01T00:00:00Z")
    assert archec_inline(archive, "find", folder / "x.rdf").code == 7


def test_the_text_of_a_page_and_redirects(archive: Config, folder: Path, site: Site) -> None:
    site["/a"], site["/b"], site["/to"] = page("some words"), pdf("b"), moved("/b")
    write_papers(archive, [site.url(path) for path in ("/a", "/b", "/to")])
    run(archive)
    held = hashlib.sha256(pdf("b").body)
    (folder / "x.html").write_bytes(page("some <b>words</b>").body + b"<!-- another -->")
    texts = rows(archec_inline(archive, "find", "--text", folder / "x.html", "--json"))
    assert [row["id"] for row in texts] == [site.url("/a")]
    both = rows(archec_inline(archive, "find", "--sha256", held.hexdigest(), "--json"))
    assert [row["id"] for row in both] == [site.url("/b"), site.url("/to")]


def test_what_cannot_be_looked_for(archive: Config, folder: Path) -> None:
    (folder / "x").write_bytes(b"\0\1\2")
    for arguments, code in (
        ([], 2), ([folder / "x", "--md5", "0" * 32], 2), (["--md5", "0" * 31], 2), (["--sha256", "x"], 2),
        ([folder / "none"], 1), (["--text", folder / "none"], 1), ([folder / "x"], 7), (["--text", folder / "x"], 7),
        (["--sha256", "0" * 64], 7),
    ):  # fmt: skip
        done = archec_inline(archive, "find", *arguments)
        assert (done.code, done.out) == (code, b""), (arguments, done)
