"""Large files in parts: the same templates as in one piece, in flat memory."""

from __future__ import annotations

import codecs
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from archec.redif.files import PART, Blob, Unread, in_parts, with_lf
from archec.redif.scan import scan
from archec.redif.source import open_source

COUNT = 25_000


def template(at: int) -> str:
    title, abstract = f"Paper {at} by Łukasz", "word " * 20
    return f"Template-Type: ReDIF-Paper 1.0\nTitle: {title}\nAbstract: {abstract}\nHandle: RePEc:aaa:ssssss:{at}\n\n"


@cache
def whole_text() -> str:
    return "".join(map(template, range(COUNT)))


def chunked(data: bytes, size: int = 300_001) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize(
    ("mark", "codec", "end", "encoding"),
    [
        (b"", "utf-8", "\n", "utf-8"),
        (b"", "utf-8", "\r\n", "utf-8"),
        (b"", "utf-8", "\r", "utf-8"),
        (codecs.BOM_UTF8, "utf-8", "\n", "utf-8-bom"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "\n", "utf-16le"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "\r\n", "utf-16be"),
    ],
    ids=["lf", "crlf", "cr", "mark", "utf-16-le", "utf-16-be"],
)
def test_parts_hold_what_the_file_holds(mark: bytes, codec: str, end: str, encoding: str) -> None:
    data = mark + whole_text().replace("\n", end).encode(codec)
    blobs = [item for item in in_parts("aaa/x.rdf", 7, chunked(data)) if isinstance(item, Blob)]
    assert len(blobs) > 1
    assert [blob.part for blob in blobs] == list(range(len(blobs)))
    assert [blob.last for blob in blobs] == [False] * (len(blobs) - 1) + [True]
    assert all(len(blob.data) <= PART + 1_000_000 and blob.member == 7 for blob in blobs)
    scans = [scan(blob) for blob in blobs]
    assert scans[0].encoding == encoding
    assert all(found.read and not found.problems for found in scans)
    templates = [found for one in scans for found in one.templates]
    assert [found.id for found in templates] == [f"RePEc:aaa:ssssss:{at}" for at in range(COUNT)]
    assert [found.line for found in templates] == [5 * at + 1 for at in range(COUNT)]
    whole = scan(Blob("aaa/x.rdf", data))
    assert [found.text for found in whole.templates] == [found.text for found in templates]


@pytest.mark.parametrize("mark", ["\ufeff", "\ufeff\ufeff"], ids=["once", "twice"])
@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be"])
def test_parts_of_files_that_were_joined_with_their_marks(codec: str, mark: str) -> None:
    data = "".join(f"{mark}{template(at)}" for at in range(COUNT)).encode(codec)
    blobs = [item for item in in_parts("aaa/x.rdf", 7, chunked(data)) if isinstance(item, Blob)]
    assert len(blobs) > 1
    templates = [found for blob in blobs for found in scan(blob).templates]
    assert [found.id for found in templates] == [f"RePEc:aaa:ssssss:{at}" for at in range(COUNT)]
    assert [found.text for found in templates] == [template(at)[:-1].encode() for at in range(COUNT)]


def test_a_template_that_is_too_large_is_left_out() -> None:
    huge = "Template-Type: ReDIF-Paper 1.0\nHandle: big\n" + "Note: x\n" * 1_200_000
    text = template(1) + huge + template(2) * 3
    items = list(in_parts("aaa/x.rdf", 1, chunked(text.encode())))
    unread = [item for item in items if isinstance(item, Unread)]
    assert [(item.path, item.problem.code, item.problem.line) for item in unread] == [("aaa/x.rdf", "too-large", 6)]
    found = [t for item in items if isinstance(item, Blob) for t in scan(item).templates]
    assert [t.id for t in found] == ["RePEc:aaa:ssssss:1"] + ["RePEc:aaa:ssssss:2"] * 3
    assert found[1].line == 5 + 1_200_002 + 1


def test_only_one_template_and_too_large() -> None:
    text = b"Template-Type: ReDIF-Paper 1.0\nHandle: big\n" + b"Note: x\n" * 1_200_000
    items = list(in_parts("aaa/x.rdf", 1, chunked(text)))
    assert [type(item) for item in items] == [Unread, Blob]
    last = items[-1]
    assert isinstance(last, Blob)
    assert last.last
    assert scan(last).problems == []


def test_a_large_file_without_templates() -> None:
    taken: list[int] = []
    chunks = (taken.append(1) or chunk for chunk in chunked(b"no template\n" * 2_000_000))
    items = list(in_parts("aaa/x.rdf", 1, chunks))
    assert len(items) == 1
    assert isinstance(items[0], Blob)
    assert items[0].last
    assert len(items[0].data) < 100_000
    assert not scan(items[0]).read
    assert len(taken) < 20  # the rest was not read


def test_damaged_utf16_in_parts() -> None:
    data = codecs.BOM_UTF16_LE + whole_text().encode("utf-16-le") + b"\x00\xd8\x00"
    items = list(in_parts("aaa/x.rdf", 1, chunked(data)))
    assert isinstance(items[-1], Unread)
    assert items[-1].problem.code == "utf-16-damaged"


@pytest.mark.slow
def test_memory_is_flat(tmp_path: Path) -> None:
    def peak(copies: int) -> int:
        with (tmp_path / "x.rdf").open("wb") as file:
            for _ in range(copies):
                file.write(whole_text().encode())
        tracemalloc.start()
        with open_source(tmp_path, max_file=10**12) as source:
            count = sum(len(scan(item).templates) for item in source if isinstance(item, Blob))
        high = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == copies * COUNT
        return high

    assert peak(6) < peak(1) * 1.1


def test_cut_points_agree_with_lf() -> None:
    assert with_lf(whole_text().encode()) == whole_text().encode()
