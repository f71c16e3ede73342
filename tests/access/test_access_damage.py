"""WARC files that were cut or overwritten: what is whole is indexed, what is not is reported."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import threading
import tracemalloc
import zlib
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

import httpx
import pytest
from access_support import client, configured, give_tokens, serving, write_index
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from warc_files import Crawl

from archec.access import warcindex
from archec.access.warcindex import index_folder, index_path
from archec.cli.access import access
from archec.progress import Meter
from archec.warc.framing import Framing, Records

S = "20140101000000"


class Crawled(NamedTuple):
    """A file with three records: where they start, and where their contents end."""

    data: bytes
    starts: list[int]
    ends: list[int]


def crawled(path: Path, *, packed: bool) -> Crawled:
    crawl = Crawl(path, gzip=packed)
    for number in range(3):
        crawl.response(f"http://a.org/{number}", S, b"contents" * (number + 1))
    starts = [int(json.loads(row[row.index(b"{") :])["offset"]) for row in crawl.close()]
    data = path.read_bytes()
    return Crawled(data, starts, [end if packed else end - 4 for end in (*starts[1:], len(data))])


def unpacked(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return b""


def framing(data: bytes) -> Framing:
    records = Records(io.BufferedReader(io.BytesIO(data)), lambda *_: True)
    assert all(0 <= offset < offset + length <= len(data) for offset, length, _ in records)
    return records.framing


@pytest.fixture(scope="module", params=[True, False])
def crawl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    return crawled(tmp_path_factory.mktemp("crawl") / "a.warc", packed=request.param)


@pytest.mark.parametrize("packed", [True, False])
def test_what_was_overwritten_since_it_was_indexed_is_not_passed_on(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "w" / "a"
    crawl = Crawl(path, gzip=packed)
    for size in (0, 1000, 300_000):
        crawl.response(f"http://a.org/{size}", S, Random(size).randbytes(size))
    lines = crawl.close()
    write_index(tmp_path / "a.cdxj", lines)
    damaged = bytearray(path.read_bytes())
    for row in lines:
        place = json.loads(row[row.index(b"{") :])
        damaged[int(place["offset"]) + int(place["length"]) - 12] ^= 1
    path.write_bytes(damaged)
    config = configured(tmp_path, "collections: {c: {index: a.cdxj, resource: ./w}}")
    give_tokens(config)
    with serving(config) as url, client(url) as get:
        for size in (0, 1000):
            answer = get.get(f"/c/resource?url=http://a.org/{size}")
            assert answer.status_code == 404
            assert answer.json()["errors"]["c"] in ("a: it is damaged", "a: it does not match its digest")
        with pytest.raises(httpx.RemoteProtocolError):
            get.get("/c/resource?url=http://a.org/300000")


def test_every_cut_is_noticed_and_leaves_what_is_before_it(crawl: Crawled) -> None:
    assert framing(crawl.data) == Framing(len(crawl.data), "", frozenset())
    for cut in range(len(crawl.data)):
        found = framing(crawl.data[:cut])
        assert bool(found.damage) == (cut not in crawl.starts), cut
        last = max(number for number, start in enumerate(crawl.starts) if start <= cut)
        assert found.end == (cut if crawl.ends[last] <= cut else crawl.starts[last]), cut


@pytest.mark.parametrize("packed", [True, False])
def test_records_larger_than_a_buffer_are_whole(tmp_path: Path, *, packed: bool) -> None:
    crawl = Crawl(tmp_path / "a.warc", gzip=packed)
    chance = Random(7)
    for number, size in enumerate((0, 1, 65_535, 65_536, 65_537, 300_000, 8192 * 3, 1_000_003)):
        crawl.response(f"http://a.org/{number}", S, chance.randbytes(size // 50) * 50)
        crawl.response(f"http://a.org/r{number}", S, chance.randbytes(size))
    rows = crawl.close()
    data = (tmp_path / "a.warc").read_bytes()
    assert (framing(data), len(rows)) == (Framing(len(data), "", frozenset()), 16)


def test_line_ends_are_free_and_a_wrong_length_costs_its_record_alone(tmp_path: Path) -> None:
    data, starts, _ = crawled(tmp_path / "a.warc", packed=False)
    head, blank, rest = data.partition(b"\r\n\r\n")
    odd = (head + blank).replace(b"\r\n", b"\r\r\n") + rest
    assert framing(odd) == Framing(len(odd), "", frozenset())
    length = data.index(b"Content-Length: ", starts[1]) + 16
    digits = data[length : data.index(b"\r", length)]
    short = data[:length] + b"%d" % (int(digits) - 3) + data[length + len(digits) :]
    assert framing(short) == Framing(len(short), "", frozenset({starts[1]}))


@settings(max_examples=200)
@given(st.data(), st.binary(min_size=1, max_size=40))
def test_what_is_overwritten_is_noticed(crawl: Crawled, draw: st.DataObject, new: bytes) -> None:
    data, starts, ends = crawl
    at = draw.draw(st.integers(0, len(data) - len(new)))
    other = data[:at] + new + data[at + len(new) :]
    found = framing(other)
    number = max(number for number, start in enumerate(starts) if start <= at)
    assert found.end >= starts[number]
    assert all(offset >= starts[number] for offset in found.altered)
    changed = [position for position, byte in enumerate(new, at) if data[position] != byte]
    if data[:1] == b"W":  # only the contents have a digest
        is_checked = all(ends[number] - 8 * (number + 1) <= position < ends[number] for position in changed)
    else:
        is_checked = unpacked(other) != unpacked(data)
    assert found.damage or found.altered or not changed or not is_checked


def test_a_record_that_was_written_with_a_wrong_digest_is_indexed(tmp_path: Path) -> None:
    data, starts, _ = crawled(tmp_path / "w" / "a.warc.gz", packed=True)
    raw = gzip.decompress(data[starts[1] : starts[2]])
    digest = raw.index(b"WARC-Block-Digest: sha1:") + len(b"WARC-Block-Digest: sha1:")
    wrong = gzip.compress(raw[:digest] + b"A" * 32 + raw[digest + 32 :])
    (tmp_path / "w" / "a.warc.gz").write_bytes(data[: starts[1]] + wrong + data[starts[2] :])
    run = CliRunner().invoke(access, ["index", str(tmp_path / "w")])
    assert (run.exit_code, len(index_path(tmp_path / "w").read_text().splitlines())) == (6, 3)
    told = f"has 1 record with a wrong WARC-Block-Digest, the first at {starts[1]}; indexed"
    assert told in run.stderr.replace("\n", " ")


def test_two_runs_do_not_undo_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one finds a file more, and may not end before the first."""
    crawled(tmp_path / "w" / "a.warc", packed=False)
    second = threading.Thread(target=index_folder, args=(tmp_path / "w", Meter()))
    write = warcindex.write_lines

    def meanwhile(target: Path, lines: Iterable[bytes]) -> int:
        if threading.current_thread() is not second:
            crawled(tmp_path / "w" / "b.warc", packed=False)
            second.start()
            second.join(0.3)
        return write(target, lines)

    monkeypatch.setattr(warcindex, "write_lines", meanwhile)
    assert index_folder(tmp_path / "w", Meter())[:3] == (1, 1, 3)
    second.join()
    rows = index_path(tmp_path / "w").read_text().splitlines()
    assert sorted({json.loads(row[row.index("{") :])["filename"] for row in rows}) == ["a.warc", "b.warc"]


def test_damaged_files_are_indexed_up_to_the_damage_and_reported(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    whole: dict[str, int] = {}
    sound: set[str] = set()
    for packed in (True, False):
        data, starts, ends = crawled(folder / f"whole{packed}.warc", packed=packed)
        for position in [*range(1, len(data), 23), *starts]:
            whole[f"cut{packed}-{position}.warc"] = whole[f"over{packed}-{position}.warc"] = sum(
                end <= position for end in ends
            )
            (folder / f"cut{packed}-{position}.warc").write_bytes(data[:position])
            (folder / f"over{packed}-{position}.warc").write_bytes(
                data[:position] + b"\xff\x00\x9b" + data[position + 3 :]
            )
        whole[f"whole{packed}.warc"] = 3
        sound |= {f"whole{packed}.warc"} | {f"cut{packed}-{position}.warc" for position in starts}
    run = CliRunner().invoke(access, ["index", str(folder)])
    assert run.exit_code == 6
    assert run.stderr.replace("\n", "").isprintable()
    rows = [json.loads(row[row.index("{") :])["filename"] for row in index_path(folder).read_text().splitlines()]
    for name, least in whole.items():
        assert rows.count(name) == least or (name.startswith("over") and rows.count(name) > least), name
    damaged = {reason.partition(":")[0] for reason in index_folder(folder, Meter()).damaged}
    assert {name for name in whole if f"{name}: " in run.stderr} == damaged
    assert {name for name in whole if not name.startswith("over")} - damaged == sound


def test_a_header_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    block = b"HTTP/1.1 200 OK\r\nX: " + b"a" * 30_000_000 + b"\r\nContent-Type: text/html\r\n\r\nhello"
    head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://x.org/\r\nWARC-Date: 2014-01-01T00:00:00Z\r\n"
    rest = b"Content-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n" % len(block)
    (tmp_path / "a.warc").write_bytes(head + rest + block + b"\r\n\r\n")
    tracemalloc.start()
    try:
        assert index_folder(tmp_path, Meter())[:3] == (1, 1, 1)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    sha1 = base64.b32encode(hashlib.sha1(b"hello").digest()).decode()
    row = json.loads("{" + index_path(tmp_path).read_text().partition("{")[2])
    assert (row["mime"], row["digest"]) == ("text/html", f"sha1:{sha1}")
