"""Template files that are none, broken, or meant to break: each is told with its place, and the run goes on."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest
from gather_support import Member, archec_inline, check, histories, make, tarball, template
from hostile_support import GOOD, assert_clean, gathered, good, problems, written

HEAD = "Template-Type: ReDIF-Paper 1.0\n"


class Case(NamedTuple):
    """A file, the problem it must be told with (none: ``""``), its line, and the handles taken from it."""

    name: str
    data: bytes
    code: str = ""
    line: int = 0
    handles: tuple[str, ...] = ()


def one(name: str, body: str | bytes, code: str = "", line: int = 0) -> Case:
    """A file with one template whose handle is made of the file's name."""
    data = body if isinstance(body, bytes) else body.encode()
    handle = f"RePEc:aaa:sss:{name}"
    return Case(name, HEAD.encode() + data + f"Handle: {handle}\n".encode(), code, line, (handle,))


MERGED = (
    f"{HEAD}Title: one\nHandle: RePEc:aaa:sss:merged\n"
    "<<<<<<< mine\nAbstract: x\n=======\nAbstract: y\n>>>>>>> theirs\n"
).encode()

CASES = [
    Case("empty", b"", "empty"),
    Case("blank", b" \r\n\t\n", "empty"),
    Case("zeros", bytes(5000), "empty"),
    Case("pdf", b"%PDF-1.4\n" + bytes(range(256)) * 20, "binary"),
    Case("elf", b"\x7fELF" + bytes(range(256)), "binary"),
    Case("page", b"<!DOCTYPE html><html><body><h1>404 Not Found</h1></body></html>", "html-page"),
    Case("prose", b"There is nothing here any more.\n", "no-template"),
    Case("commented", b"# Template-Type: ReDIF-Paper 1.0\n# Handle: RePEc:aaa:sss:c\n", "commented-out"),
    Case("merged", MERGED, "conflict-marker", 4, ("RePEc:aaa:sss:merged",)),
    Case("nameless", HEAD.encode() + b"Title: nobody\n", "no-handle", 1),
    Case("url", f"{HEAD}Handle: http://127.0.0.1/x\n".encode(), "bad-handle", 1),
    Case("typeless", b"\n\nTemplate-Type:\n", "no-handle", 3),
    one("twice", "Handle: RePEc:aaa:sss:other\n", "two-handles", 1)._replace(handles=("RePEc:aaa:sss:other",)),
    one("mixed", b"Title: caf\xe9\nAbstract: caf\xc3\xa9\n", "mixed-encoding"),
    one("overlong", b"Title: \xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf\xed\xa0\x80\xf8\x88\x80\x80\x80\n"),
    one("nuls", b"Title: a\0b\0\n"),
    Case("cr", f"{HEAD}Title: one\nHandle: RePEc:aaa:sss:cr\n".replace("\n", "\r").encode(), "", 0,
         ("RePEc:aaa:sss:cr",)),
    Case("unmarked", f"{HEAD}Handle: RePEc:aaa:sss:unmarked\n".encode("utf-16-le"), "binary"),
    Case("odd", b"\xff\xfe" + f"{HEAD}Handle: RePEc:aaa:sss:odd\n".encode("utf-16-le") + b"x", "utf-16-damaged", 0,
         ("RePEc:aaa:sss:odd",)),
    one("lines", "Abstract: x\n" + " y\n" * 1_000_000),
    one("colons", "Abstract: x\n" + "z:\n" * 300_000),
    one("authors", "".join(f"Author-Name: A {n}\n" for n in range(100_000))),
    one("workplaces", "Author-Name: A\n" + "Author-Workplace-Name: B\nAuthor-Workplace-Postal: C\n" * 30_000),
    one("deep", "".join(f"{'Author-' * n}Workplace-Name: x\n" for n in range(1, 500))),
    one("keyless", "Author-Email: a@b\n" * 5, "cluster-without-key", 2),
    one("file-urls", "".join(f"File-URL: http://h.example/{n:08}\n" for n in range(20_000)), "too-many-files", 1),
    one("bad-url", "File-URL: http://[/x\n", "bad-url", 2),
    one("empty-url", "File-URL:\nFile-Format: text/html\n", "empty-url", 2),
    Case("too-large", f"{HEAD}Abstract: {'x' * 4_300_000}\nHandle: RePEc:aaa:sss:large\n".encode(), "too-large", 1),
    one("field-name", "a" * 1_000_000 + ": x\n"),
    one("blanks", "Title:" + " " * 1_000_000 + "\n"),
    Case("kind", b"Template-Type: " + b"k" * 3_000_000 + b"\n", "no-handle", 1),
]  # fmt: skip


@pytest.mark.parametrize("form", ["tarball", "directory"])
def test_each_is_told_with_its_place_and_the_run_goes_on(folder: Path, form: str) -> None:
    config = make(folder / "archive")
    if form == "tarball":
        members = [Member(f"RePEc/aaa/sss/{case.name}.rdf", case.data) for case in CASES]
        path = "RePEc/aaa/sss"
        report = gathered(config, "-f", tarball(folder / "RePEc_2001-01-01.tar.gz", [*members, good()]), "--no-fetch")
    else:
        path = "aaa/sss"
        for case in CASES:
            (config.data_path / path).mkdir(parents=True, exist_ok=True)
            (config.data_path / path / f"{case.name}.rdf").write_bytes(case.data)
        (config.data_path / "zzz/good").mkdir(parents=True)
        (config.data_path / "zzz/good/1.rdf").write_bytes(good().data or b"")
        report = gathered(config, "--no-fetch")
    told = sorted((one["path"], one["line"], one["code"]) for one in report["problems"]["first"])
    assert told == sorted((f"{path}/{case.name}.rdf", case.line, case.code) for case in CASES if case.code)
    assert sum(report["problems"]["by_code"].values()) == len(report["problems"]["first"])
    assert set(histories(config)) == {GOOD} | {handle for case in CASES for handle in case.handles}
    assert report["state"] == "done"
    assert report["data_set"]["whole"]
    check(config)


HANDLES = [
    "RePEc:aaa:sss:a/b", "RePEc:aaa:sss:../../../../etc/passwd", "RePEc:aaa:sss:/etc/passwd", "RePEc:aaa:sss:a\0b",
    "RePEc:aaa:sss:" + "x" * 5000, "RePEc:aaa:sss:" + "\u20ac" * 5000, "RePEc:aaa:sss:a\u2013b", "RePEc:aaa:sss:..",
    "RePEc:aaa:sss:.", "..", ".", "/", "\\", "%2e%2e%2f", "RePEc:aaa:sss:a%2Fb", "RePEc:aaa:sss:\x1b[2Jx",
    "RePEc:aaa:sss:\u202egnp", "RePEc:aaa:sss:\U0010ffff", "RePEc:aaa:sss:\x7f\x85\x9b31m", "-rf", "--help", "runs",
    "layout.json", "0=archec_1.0", ".+1-1.part", "RePEc:aaa:sss:'; DROP TABLE mi; --", "RePEc:aaa:sss:{$gt:1}",
    "$where",
    "RePEc:aaa:sss:\ufeff", "nul", "RePEc:::::", "RePEc:aaa:sss:x~0123456789abcdef0123456789abcdef",
]  # fmt: skip
TOO_LONG = "RePEc:aaa:sss:" + "y" * 20_000


def test_handles_that_are_no_names_of_files(folder: Path) -> None:
    """Each is kept under a plain name inside the store, and can be had back."""
    config = make(folder / "archive")
    texts = [template(handle, f"Title {n}") for n, handle in enumerate([*HANDLES, TOO_LONG])]
    file = tarball(folder / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/sss/x.rdf", "\n".join(texts).encode()), good()])
    before = set(written(folder))
    report = gathered(config, "-f", file, "--no-fetch")
    assert report["problems"]["by_code"] == {"no-handle": 1}
    assert report["problems"]["first"][0]["line"] == 1 + 4 * len(HANDLES)
    assert (report["tobis"]["new"], report["templates"]["without_handle"]) == (len(HANDLES) + 1, 1)
    new = set(written(folder)) - before
    assert all(path.startswith(("archive/archive/", "archive/data/catalogue.sqlite")) for path in new)
    check(config)
    for n, handle in enumerate(HANDLES):
        if "\0" not in handle and n % 5 == 0:  # no argument of a command can hold a NUL
            done = archec_inline(None, "get", "--config", config.base / "config.yaml", "--", handle)
            assert (done.code, done.out) == (0, texts[n].encode()), handle


def test_nothing_speaks_to_the_terminal(folder: Path) -> None:
    """Control characters in titles, types, handles, names and reasons reach nobody's screen."""
    config = make(folder / "archive")
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\r\u202e"
    handle = f"RePEc:aaa:sss:{evil.strip()}"
    texts = [
        template(handle, f"A {evil} title", [f"http://h.example/{evil}", f"hhttp://{evil}/", f"http://h:{evil}/"]),
        f"Template-Type: {evil}\nTitle: nobody\n",
        f"Template-Type: ReDIF-Paper 1.0\nHandle: {handle}\nHandle: {handle}\nTitle: x\n",
    ]
    members = [
        Member(f"RePEc/aaa/sss/{evil}.rdf", "\n".join(texts).encode()),
        Member(f"RePEc/aaa/sss/{evil}/../x", b""),
        Member(f"RePEc/aaa/{evil}", None),
        good(),
    ]
    file = tarball(folder / "RePEc_2001-01-01.tar", members)
    for arguments in (
        ["gather", "-f", file, "--no-fetch"], ["gather", "-f", file, "--no-fetch", "--dry-run"],
        ["history", handle.replace("\r", "")], ["gather", "-f", f"no{evil}such.tar"], ["gather", "--accept-losses",
        evil],
    ):  # fmt: skip
        done = archec_inline(config, *arguments)
        assert_clean(done)
        assert evil not in done.err
    report = gathered(config, "-f", file, "--no-fetch")
    assert {code for _, code in problems(report)} >= {"bad-name", "no-handle", "two-handles"}
    path = folder / "lint.rdf"
    path.write_text("\n".join(texts), newline="")
    assert_clean(archec_inline(None, "redif", path))
    check(config)


def test_more_problems_than_a_report_lists(folder: Path) -> None:
    """All are counted; the report and the journal stay small, and so does memory."""
    config = make(folder / "archive")
    data = b"Template-Type: x\n" * 100_000
    file = tarball(folder / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/sss/x.rdf", data), good()])
    report = gathered(config, "-f", file, "--no-fetch")
    assert report["problems"]["by_code"] == {"no-handle": 100_000}
    assert len(report["problems"]["first"]) == 200
    assert len(json.dumps(report)) < 100_000
    check(config)


def test_texts_that_are_large_fill_neither_memory_nor_a_journal_s_batch(folder: Path) -> None:
    """Megabytes of title, type, handle or reason, many times over: the batch that the journal takes is bounded."""
    config = make(folder / "archive")
    big = "x" * 3_000_000
    members = [good()]
    for n in range(4):
        head = f"Template-Type: ReDIF-Paper 1.0\nHandle: RePEc:aaa:sss:{n}\n"
        members += [
            Member(f"RePEc/aaa/sss/title{n}.rdf", f"{head}Title: {big}\n".encode()),
            Member(f"RePEc/aaa/sss/kind{n}.rdf", f"Template-Type: {big}{n}\nTitle: x\n".encode()),
            Member(f"RePEc/aaa/sss/handle{n}.rdf", f"Template-Type: x\nHandle: {big}{n}\n".encode()),
            Member(f"RePEc/aaa/sss/url{n}.rdf", f"{head}x\nFile-URL: http://h/{big}\nFile-Format: x\n".encode()),
        ]
    file = tarball(folder / "RePEc_2001-01-01.tar.gz", members)
    report = gathered(config, "-f", file, "--no-fetch")
    assert report["problems"]["by_code"] == {"no-handle": 8, "too-many-files": 4}
    assert report["tobis"]["new"] == 9
    assert max(len(data) for path, data in written(config.store_path / "runs").items()) < 200_000
    check(config)


@pytest.mark.parametrize("spoilt", ["utf-16", "truncated", "too-large"])
def test_what_a_spoilt_file_has_that_is_whole_is_kept(folder: Path, spoilt: str) -> None:
    """A file that is read in parts, the last of which cannot be: its templates count, its absences do not.

    Of a tarball that ends in the middle of a file, only the files before it are salvaged.
    """
    config = make(folder / "archive")
    lost = Member("RePEc/aaa/sss/0.rdf", template("RePEc:aaa:sss:none").encode())
    assert gathered(config, "-f", tarball(folder / "RePEc_2001-01-01.tar", [lost]), "--no-fetch")["tobis"]["new"] == 1
    text = "".join(template(f"RePEc:aaa:sss:{n}", "A title " + "x" * 20_000) for n in range(300))
    if spoilt == "utf-16":
        data = b"\xff\xfe" + text.encode("utf-16-le") + b"x"
    elif spoilt == "too-large":
        data = (text + template("RePEc:aaa:sss:large", "x" * 9_000_000)).encode()
    else:
        data = text.encode()
    path = tarball(folder / "RePEc_2001-01-02.tar", [Member("RePEc/aaa/sss/1.rdf", data)])
    if spoilt == "truncated":
        path.write_bytes(path.read_bytes()[: len(data) - 100_000])
    if spoilt == "truncated":
        report = gathered(config, "-f", path, "--no-fetch", "--salvage")
        assert (report["tobis"]["new"], report["tobis"]["lost"]) == (0, 0)
        check(config)
        return
    report = gathered(config, "-f", path, "--no-fetch")
    assert report["tobis"]["new"] == 300
    assert (report["tobis"]["lost"], report["files"]["unreadable"]) == (0, 1)
    assert ("RePEc/aaa/sss/1.rdf", "utf-16-damaged" if spoilt == "utf-16" else spoilt) in problems(report)
    check(config)


@pytest.mark.parametrize("what", ["names", pytest.param("types", marks=pytest.mark.slow)])
def test_reasons_of_megabytes_do_not_end_a_run(folder: Path, what: str) -> None:
    """Two hundred problems that each quote a megabyte would be a report that no journal takes."""
    config = make(folder / "archive")
    path = folder / "RePEc_2001-01-01.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT, compresslevel=1) as tar:
        for n in range(200 if what == "names" else 50):
            info = tarfile.TarInfo(f"RePEc/aaa/{n}" + ("x" * 1_000_000 if what == "names" else ".rdf"))
            data = b"" if what == "names" else b"Template-Type: " + b"k" * 3_900_000 + b"\nTitle: x\n"
            info.type, info.linkname = (tarfile.SYMTYPE, "/etc/passwd") if what == "names" else (tarfile.REGTYPE, "")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        info = tarfile.TarInfo(good().path)
        info.size = len(good().data or b"")
        tar.addfile(info, io.BytesIO(good().data or b""))
    report = gathered(config, "-f", path, "--no-fetch")
    assert report["tobis"]["new"] == 1
    assert sum(report["problems"]["by_code"].values()) == (200 if what == "names" else 50)
    assert len(json.dumps(report)) < 500_000
    check(config)
