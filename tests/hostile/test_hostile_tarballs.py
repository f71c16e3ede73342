"""Tarballs that are broken or mean harm: nothing leaves the archive, nothing is lost, and the rest is read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from gather_support import Member, archec_inline, check, histories, make, tarball, template
from hostile_support import GOOD, assert_clean, gathered, good, problems, written

PAPER = template("RePEc:aaa:sss:1").encode()


def block(name: str | bytes, data: bytes = b"", **about: object) -> bytes:
    """A member as it lies in a tar file, with whatever its header is to say."""
    info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name)
    info.size = len(data)
    for key, value in about.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + data + bytes(-len(data) % 512)


def raw(kind: bytes, data: bytes = b"", size: bytes = b"", mtime: bytes = b"") -> bytes:
    """A member with fields that the standard library does not write."""
    head = bytearray(block("RePEc/aaa/sss/x.rdf", data)[:512])
    head[156:157] = kind
    if size:
        head[124:136] = size.ljust(12, b"\0")
    if mtime:
        head[136:148] = mtime.ljust(12, b"\0")
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    return bytes(head) + data + bytes(-len(data) % 512)


def pax(**records: str) -> bytes:
    """A pax header for the member that follows."""
    text = b""
    for key, value in records.items():
        body = f" {key.replace('_', '.')}={value}\n".encode()
        size = len(body) + 1
        while len(str(size)) + len(body) != size:
            size = len(str(size)) + len(body)
        text += str(size).encode() + body
    return raw(b"x", text)


def end(*parts: bytes) -> bytes:
    """A whole tar file of these, with a good member last."""
    return b"".join(parts) + block(good().path, good().data or b"") + bytes(1024)


REFUSED: list[tuple[str, bytes, str]] = [
    ("dots", block("RePEc/aaa/../../../../tmp/owned", PAPER), "bad-name"),
    ("dots-first", block("../owned", PAPER), "bad-name"),
    ("absolute", block("/tmp/owned", PAPER), "bad-name"),
    ("not-utf-8", block(b"RePEc/aaa/\xff.rdf", PAPER), "bad-name"),
    ("long-name", block("RePEc/aaa/" + "x" * 500_000 + ".rdf", PAPER), "bad-name"),
    ("pax-dots", pax(path="RePEc/aaa/../../owned") + block("RePEc/aaa/x.rdf", PAPER), "bad-name"),
    ("pax-nul", pax(path="RePEc/aaa/a\0b.rdf") + block("RePEc/aaa/x.rdf", PAPER), "bad-name"),
    ("symlink", block("RePEc/aaa/l.rdf", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "link"),
    ("long-link", block("RePEc/aaa/l.rdf", type=tarfile.SYMTYPE, linkname="/etc/" + "x" * 5000), "link"),
    ("hard-link", block("RePEc/aaa/h.rdf", type=tarfile.LNKTYPE, linkname="../../../etc/shadow"), "link"),
    ("character", block("RePEc/aaa/c.rdf", type=tarfile.CHRTYPE, devmajor=1, devminor=5), "bad-member"),
    ("device", block("RePEc/aaa/b.rdf", type=tarfile.BLKTYPE), "bad-member"),
    ("pipe", block("RePEc/aaa/f.rdf", type=tarfile.FIFOTYPE), "bad-member"),
    ("sparse", raw(b"S", PAPER), "bad-member"),
    ("sparse-pax", pax(GNU_sparse_major="1", GNU_sparse_size="9" * 15) + block("RePEc/aaa/s.rdf", PAPER), "bad-member"),
    ("unknown", raw(b"Z", PAPER), "bad-member"),
    ("volume", raw(b"M", PAPER), "bad-member"),
    ("pax-bomb", raw(b"x", b"9" * 2_000_000) + block("RePEc/aaa/x.rdf", PAPER), "bad-member"),
    ("name-bomb", raw(b"L", b"n" * 2_000_000) + block("RePEc/aaa/x.rdf", PAPER), "bad-member"),
]  # fmt: skip


def test_members_that_are_not_taken(folder: Path) -> None:
    """Each is told by its name, makes its archive's absences no evidence, and touches no file out of the archive."""
    config = make(folder / "archive")
    first = tarball(folder / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/sss/1.rdf", PAPER), good()])
    assert gathered(config, "-f", first, "--no-fetch")["tobis"]["new"] == 2
    before = set(written(folder))
    path = folder / "RePEc_2001-01-02.tar"
    path.write_bytes(end(*(data for _, data, _ in REFUSED)))
    report = gathered(config, "-f", path, "--no-fetch")
    told = [one["code"] for one in report["problems"]["first"]]
    assert told == [code for _, _, code in REFUSED]
    files = {"read": 1, "unreadable": len(REFUSED), "bytes": len(good().data or b""), "other": 0, "others": []}
    assert report["files"] == files
    assert (report["tobis"]["same"], report["tobis"]["lost"], report["data_set"]["whole"]) == (1, 0, True)
    new = set(written(folder)) - before - {path.name}
    assert all(name.startswith(("archive/archive/", "archive/data/catalogue.sqlite")) for name in new)
    check(config)


HARMLESS: list[tuple[str, bytes]] = [
    ("negative", raw(b"0", PAPER, mtime=b"\xff" * 12)),
    ("before-1970", pax(mtime="-99999999999.5") + raw(b"0", PAPER)),
    ("huge", raw(b"0", PAPER, mtime=b"\x80" + b"\xff" * 11)),
    ("far", pax(mtime="9" * 20) + raw(b"0", PAPER)),
    ("no-number", pax(mtime="soon") + raw(b"0", PAPER)),
    ("unknown-records", pax(SCHILY_xattr="x" * 9000, comment="\x1b[2J", uid="-1") + raw(b"0", PAPER)),
    ("many-headers", pax(comment="x") * 5000 + raw(b"0", PAPER)),
    ("global", raw(b"g", b"52 path=/etc/passwd" + b"x" * 32 + b"\n") + raw(b"0", PAPER)),
    ("gnu-name", block("RePEc/aaa/sss/" + "d/" * 40 + "x" * 200 + ".rdf", PAPER)),
    ("contiguous", raw(b"7", PAPER)),
    ("dot-slash", block("./RePEc/./aaa//sss/x.rdf", PAPER)),
]


@pytest.mark.parametrize("data", [data for _, data in HARMLESS], ids=[name for name, _ in HARMLESS])
def test_odd_headers_hide_nothing(folder: Path, data: bytes) -> None:
    config = make(folder / "archive")
    path = folder / "odd.tar"
    path.write_bytes(end(data))
    report = gathered(config, "-f", path, "--no-fetch", "--as-of", "2001-01-01")
    assert (report["tobis"]["new"], report["problems"]["by_code"]) == (2, {})
    check(config)


BROKEN: list[tuple[str, bytes]] = [
    ("pax-no-length", raw(b"x", b"garbage")),
    ("pax-size", pax(size="-5") + raw(b"0", PAPER)),
    ("pax-size-huge", pax(size="9" * 19) + raw(b"0", PAPER)),
    ("size-huge", raw(b"0", PAPER, size=b"\x80" + b"\x7f" * 11)),
    ("size-negative", raw(b"0", PAPER, size=b"\xff" * 12)),
    ("size-nonsense", raw(b"0", PAPER, size=b"a lot")),
    ("checksum", b"x" * 512),
]


@pytest.mark.parametrize("data", [data for _, data in BROKEN], ids=[name for name, _ in BROKEN])
def test_headers_that_cannot_be_believed_end_the_tarball(folder: Path, data: bytes) -> None:
    """Nothing of it is noted; salvaged, what was read before counts, and nothing is taken for lost."""
    config = make(folder / "archive")
    first = tarball(folder / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/sss/1.rdf", PAPER), good()])
    gathered(config, "-f", first, "--no-fetch")
    path = folder / "RePEc_2001-01-02.tar"
    path.write_bytes(block("RePEc/bbb/sss/1.rdf", template("RePEc:bbb:sss:1").encode()) + end(data))
    before = histories(config)
    options = ("-f", path, "--no-fetch", "--complete", "--accept-losses", "all")
    assert gathered(config, *options, code=8)["state"] == "damaged"
    assert histories(config) == before
    report = gathered(config, *options, "--salvage")
    assert (report["tobis"]["new"], report["tobis"]["lost"]) == (1, 0)
    assert report["data_set"]["whole"] is False
    assert "RePEc:aaa:sss:1" in {handle.replace("repec", "RePEc") for handle in histories(config)}
    check(config)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}  # fmt: skip


@pytest.mark.parametrize("kind", PACK)
def test_half_a_tarball(folder: Path, kind: str) -> None:
    config = make(folder / "archive")
    noise = Member("RePEc/zzz/noise.bin", random.Random(1).randbytes(2_000_000))
    data = PACK[kind](tarball(folder / "whole.tar", [good(), noise, Member("RePEc/aaa/sss/1.rdf", PAPER)]).read_bytes())
    path = folder / f"RePEc_2001-01-01.tar.{kind}"
    path.write_bytes(data[: len(data) // 2 + len(data) // 4])
    done = archec_inline(config, "gather", "-f", path, "--no-fetch")
    assert done.code == 8, done
    assert_clean(done)
    assert str(path) in done.err
    assert "--salvage" in done.err
    assert not histories(config)
    gathered(config, "-f", path, "--no-fetch", "--salvage")
    assert set(histories(config)) == {GOOD}
    check(config)


def bomb(path: Path, size: int, name: str) -> Path:
    """A gzip tarball with one member of so many zeros, in many streams of one megabyte each, and a good one."""
    piece = 1 << 20
    packed = gzip.compress(bytes(piece), 9)
    with path.open("wb") as file:
        info = tarfile.TarInfo(name)
        info.size = size
        file.write(gzip.compress(info.tobuf()))
        for _ in range(size // piece):
            file.write(packed)
        file.write(gzip.compress(end()))
    return path


def bomb_is_harmless(folder: Path, size: int) -> None:
    config = make(folder / "archive", {"work_directory": "scratch"})
    path = bomb(folder / "RePEc_2001-01-01.tar.gz", size, "RePEc/aaa/sss/bomb.rdf")
    assert path.stat().st_size < size / 500
    report = gathered(config, "-f", path, "--no-fetch")
    code = "too-large" if size > 1_000_000_000 else "empty"
    assert problems(report) == {("RePEc/aaa/sss/bomb.rdf", code)}
    assert set(histories(config)) == {GOOD}
    assert report["data_set"]["whole"]
    check(config)


def test_a_bomb(folder: Path) -> None:
    bomb_is_harmless(folder, 600 << 20)


@pytest.mark.slow
def test_a_bomb_of_ten_gigabytes(folder: Path) -> None:
    bomb_is_harmless(folder, 10 << 30)


@pytest.mark.parametrize("kind", ["bz2", "xz", "zst"])
def test_bombs_in_other_packings(folder: Path, kind: str) -> None:
    """60 MB in some kilobytes, in a name that is no template file's."""
    config = make(folder / "archive")
    stream = io.BytesIO()
    packer: dict[str, Callable[[], object]] = {
        "bz2": lambda: bz2.BZ2File(stream, "w", compresslevel=1),
        "xz": lambda: lzma.LZMAFile(stream, "w", preset=0),  # noqa: SIM115
        "zst": lambda: zstandard.ZstdCompressor(level=1).stream_writer(stream, closefd=False),
    }
    with packer[kind]() as out:  # type: ignore[attr-defined]
        info = tarfile.TarInfo("RePEc/aaa/sss/film.avi")
        info.size = 60 << 20
        out.write(info.tobuf())
        for _ in range(60):
            out.write(bytes(1 << 20))
        out.write(end())
    path = folder / f"RePEc_2001-01-01.tar.{kind}"
    path.write_bytes(stream.getvalue())
    assert path.stat().st_size < 1_000_000
    assert gathered(config, "-f", path, "--no-fetch")["tobis"]["new"] == 1


def test_a_window_that_takes_all_memory_is_refused(folder: Path) -> None:
    """A zstd frame may ask its reader for two gigabytes; one flipped bit can make it do so, and nobody can tell."""
    config = make(folder / "archive")
    parameters = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=False)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = folder / "RePEc_2001-01-01.tar.zst"
    path.write_bytes(packer.compress(end() + random.Random(1).randbytes(3_000)) + packer.flush())
    done = archec_inline(config, "gather", "-f", path, "--no-fetch")
    assert done.code == 8, done
    assert_clean(done)
    assert f"{path}: " in done.err
    assert "too much memory" in done.err


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("RePEc_99999999999999999999.tar", "2001-09-09"),
        ("RePEc_9999-99-99.tar", "2001-09-09"), ("RePEc_0000-00-00.tar", "2001-09-09"),
        ("RePEc_2009-02-28_2009-02-30.tar", "2009-02-28"),
    ],
)  # fmt: skip
def test_dates_in_names_beyond_range(folder: Path, name: str, day: str) -> None:
    """Another date is looked for, and the archive is as good as before."""
    config = make(folder / "archive")
    path = tarball(folder / name, [good()])
    report = gathered(config, "-f", path, "--no-fetch")
    assert report["data_set"]["time"][:10] == day
    assert gathered(config, "-f", path, "--no-fetch")["tobis"]["same"] == 1
    check(config)


@pytest.mark.parametrize("when", ["1970-01-01", "1960-01-01", "9999-12-31", "2999-01-01", "0001-01-01", "now-ish"])
def test_dates_of_the_operator_beyond_range(folder: Path, when: str) -> None:
    config = make(folder / "archive")
    path = tarball(folder / "RePEc_2001-01-01.tar", [good()])
    done = archec_inline(config, "gather", "-f", path, "--no-fetch", "--as-of", when)
    assert done.code == 2, done
    assert_clean(done)
    assert gathered(config, "-f", path, "--no-fetch")["tobis"]["new"] == 1
