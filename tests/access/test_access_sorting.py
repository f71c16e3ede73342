"""``archec access sort``."""

from __future__ import annotations

import gzip
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner

from archec.access import feeding, index_sorting
from archec.cli.access import access


def test_files_are_put_in_byte_order_in_place(tmp_path: Path) -> None:
    lines = [key + b",x)/ 20140101000000 {}" for key in (b"b", b"a", b"a", b"B")]
    plain, packed, headed = tmp_path / "a.cdxj", tmp_path / "b.cdxj.gz", tmp_path / "c.cdx"
    plain.write_bytes(b"\n".join(lines))
    packed.write_bytes(gzip.compress(b"\n".join(lines)))
    headed.write_bytes(b" CDX N b a m s k r V g\n" + b"\n".join(lines) + b"\n")
    marked = tmp_path / "d.cdxj"
    marked.write_bytes(BOM_UTF8 + b"\n".join(sorted(lines)))
    with_empty = tmp_path / "e.cdxj"
    with_empty.write_bytes(b"!meta {}\n" + b"\n".join(sorted(lines)) + b"\n\n")
    run = CliRunner().invoke(access, ["sort", str(tmp_path)])
    assert run.exit_code == 0, run.output
    wanted = b"".join(line + b"\n" for line in sorted(set(lines)))
    assert plain.read_bytes() == marked.read_bytes() == wanted
    assert gzip.decompress(packed.read_bytes()) == wanted
    assert with_empty.read_bytes() == b"!meta {}\n" + wanted
    assert headed.read_bytes() == b" CDX N b a m s k r V g\n" + wanted
    before = plain.stat().st_ino
    run = CliRunner().invoke(access, ["sort", "--json", str(plain)])
    assert '"was_sorted":true' in run.stdout.replace(" ", "")
    assert f"{plain.name}: was sorted already (" in CliRunner().invoke(access, ["sort", str(plain)]).stdout
    assert plain.stat().st_ino == before


def test_rows_that_are_added_meanwhile_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.cdxj"
    path.write_bytes(b"b)/ 20140101000000 {}\na)/ 20140101000000 {}\n")
    new = [b"c)/ 2014010100000%d {}" % number for number in range(2)]

    def meanwhile(file: IO[bytes], path: Path) -> Iterator[bytes]:
        yield from read(file, path)
        if new:
            feeding.write_lines(path, [*path.read_bytes().splitlines(), new.pop()])

    read = index_sorting._lines
    monkeypatch.setattr(index_sorting, "_lines", meanwhile)
    assert index_sorting.sort_index(path).lines == 4
    assert [line[:1] for line in path.read_bytes().splitlines()] == [b"a", b"b", b"c", b"c"]


def test_what_is_no_index_is_left_as_it_is_and_reported(tmp_path: Path) -> None:
    rows = b"b)/ 20140101000000 {}\na)/ 20140101000000 {}\n"
    wrong = {
        "a.cdxj": "b,x)/ 20140101000000 {}\na,x)/ 20140101000000 {}\n".encode("utf-16"),
        "b.cdxj.gz": gzip.compress(rows)[:-9],
        "c.cdxj": b"x" * (1 << 20) + b"x\n",
        "d.cdxj": b"b)/ 20140101000000 {}" + b"\r" * (2 << 20) + b"lost\n" + rows,
        "e.cdx": b"WARC/1.0\r\nWARC-Type: resource\r\nContent-Length: 0\r\n\r\n\r\n\r\n",
    }
    for name, data in wrong.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "f.cdxj").write_bytes(rows)
    run = CliRunner().invoke(access, ["sort", str(tmp_path)])
    assert run.exit_code == 6
    assert "a.cdxj:1: is not text in UTF-8" in run.stderr
    assert run.stderr.count("archec: ") == len(wrong)
    assert {name: (tmp_path / name).read_bytes() for name in wrong} == wrong
    assert (tmp_path / "f.cdxj").read_bytes() == b"a)/ 20140101000000 {}\nb)/ 20140101000000 {}\n"
