"""Tarballs: every format that tarfile makes, every compression, hostile members, damage."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from archec.errors import DataSetError
from archec.redif import tarball
from archec.redif.files import Blob, DataSetSource, Directory, Item, Unread
from archec.redif.inflate import Damaged, Raw, chunks
from archec.redif.problems import CODES
from archec.redif.source import open_source

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
MAX = 50_000_000


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, mtime: float = 1000
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.mtime = len(data), kind, mtime
    if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        info.linkname = "/etc/passwd"
    return info, data


def made(members: list[tuple[tarfile.TarInfo, bytes]], fmt: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=fmt) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def read(path: Path, data: bytes, max_file: int = MAX) -> tuple[list[Item], DataSetSource]:
    path.write_bytes(data)
    with open_source(path, max_file=max_file, patterns=["*"]) as source:
        items = list(source)
    for item in items:
        if isinstance(item, Unread):
            assert item.problem.code in CODES
            assert item.problem.path.isprintable()
    return items, source


def summary(items: list[Item]) -> list[tuple[str, str]]:
    return [
        (item.path, item.problem.code if isinstance(item, Unread) else type(item).__name__.lower()) for item in items
    ]


LONG = "RePEc/aaa/ssssss/" + "/".join(["d" * 60] * 3) + "/" + "n" * 90 + ".rdf"


@pytest.mark.parametrize("fmt", ["gnu", "pax"])
def test_a_further_volume_alone_is_not_whole(tmp_path: Path, fmt: str) -> None:
    out = io.BytesIO()
    headers = {"GNU.volume.filename": "RePEc/aaa/sss/1.rdf", "GNU.volume.offset": "1536"}
    headers = headers if fmt == "pax" else {}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers) as tar:
        for name, kind in (("1.rdf", b"M" if fmt == "gnu" else tarfile.REGTYPE), ("2.rdf", tarfile.REGTYPE)):
            info, data = member(f"RePEc/aaa/sss/{name}", b"Template-Type: ReDIF-Paper 1.0\n", kind)
            tar.addfile(info, io.BytesIO(data))
    items, source = read(tmp_path / "2.tar", out.getvalue())
    assert [item.path for item in items if isinstance(item, Blob)][-1] == "RePEc/aaa/sss/2.rdf"
    assert source.damage is not None
    assert "unpack all of them with tar -xM" in source.damage.message


def test_a_label_of_a_volume_is_no_further_volume(tmp_path: Path) -> None:
    """``tar --format=posix -V LABEL`` writes one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"GNU.volume.label": "x"}) as tar:
        info, data = member("RePEc/aaa/sss/1.rdf", b"Template-Type: ReDIF-Paper 1.0\n", tarfile.REGTYPE)
        tar.addfile(info, io.BytesIO(data))
    items, source = read(tmp_path / "1.tar", out.getvalue())
    assert [item.path for item in items if isinstance(item, Blob)] == ["RePEc/aaa/sss/1.rdf"]
    assert (source.damage, source.whole) == (None, True)


@pytest.mark.parametrize("fmt", FORMATS)
def test_what_tarfile_writes_is_read(tmp_path: Path, fmt: int) -> None:
    names = ["RePEc/aaa/1.rdf", "RePEc/aaa/ein Name.rdf", "a" * 100, "d" * 100 + "/" + "b" * 90, "./RePEc/aaa/2.rdf"]
    names += ["RePEc/aaa/Górski.rdf"]
    if fmt != tarfile.USTAR_FORMAT:
        names += [LONG, "x" * 300 + "/" + "y" * 250]
    members = [member("RePEc/", b"", tarfile.DIRTYPE), member("RePEc/empty", b"", tarfile.DIRTYPE)]
    members += [member(name, name.encode() * 37, mtime=1000 + at) for at, name in enumerate(names)]
    items, source = read(tmp_path / "data", made(members, fmt))
    assert items[:2] == [Directory("RePEc/"), Directory("RePEc/empty/")]
    blobs = [item for item in items[2:] if isinstance(item, Blob)]
    assert [(blob.path, blob.data) for blob in blobs] == [
        (name.removeprefix("./"), name.encode() * 37) for name in names
    ]
    assert [blob.member for blob in blobs] == list(range(3, 3 + len(names)))
    assert source.whole
    assert source.damage is None
    assert source.newest == 1000 + len(names) - 1
    assert source.files == len(names)
    assert source.bytes_read == sum(len(blob.data) for blob in blobs)
    assert source.position == source.size == (tmp_path / "data").stat().st_size


@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z]{1,120}(/[a-z]{1,110}){0,3}", fullmatch=True), st.binary(max_size=1500)),
        max_size=6,
    ),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_like_tarfile(tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, bytes]], fmt: int) -> None:
    path = tmp_path_factory.mktemp("tar") / "x"
    members = [member("first", b"x"), *(member(name, data) for name, data in files)]
    items, source = read(path, made(members, fmt))
    assert [(blob.path, blob.data) for blob in items if isinstance(blob, Blob)][1:] == files
    assert source.whole


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gz": gzip.compress,
    "gz-two-streams": lambda data: gzip.compress(data[:700]) + gzip.compress(data[700:]) + b"\0" * 50,
    "zst": zstandard.compress,
    "zst-two-frames": lambda data: zstandard.compress(data[:700]) + zstandard.compress(data[700:]),
    "zst-with-padding": lambda data: (b"\0" * 50).join(
        zstandard.ZstdCompressor(write_checksum=True).compress(part) for part in (data[:700], data[700:])
    ),
    "zst-of-pzstd": lambda data: (
        b"P*M\x18\4\0\0\0\x20\0\0\0" + zstandard.ZstdCompressor(write_checksum=True).compress(data)
    ),
    "xz": lzma.compress,
    "xz-two-streams": lambda data: lzma.compress(data[:700]) + lzma.compress(data[700:]),
    "bz2": bz2.compress,
    "bz2-two-streams": lambda data: bz2.compress(data[:700]) + bz2.compress(data[700:]),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressions_are_told_by_content(tmp_path: Path, name: str) -> None:
    data = made([member("RePEc/aaa/1.rdf", b"x" * 3_000_000), member("RePEc/aaa/2.rdf", b"y" * 1234)])
    items, source = read(tmp_path / "any-name.txt", COMPRESSED[name](data))
    assert [len(item.data) for item in items if isinstance(item, Blob)] == [3_000_000, 1234]
    assert source.whole


@pytest.mark.parametrize("name", COMPRESSED)
def test_only_nuls_may_follow(tmp_path: Path, name: str) -> None:
    data = made([member("RePEc/aaa/1.rdf", b"x" * 3000)])
    items, source = read(tmp_path / "x", COMPRESSED[name](data) + b"\0" * 700)
    assert (len(items), source.whole, source.damage) == (1, True, None)
    _, source = read(tmp_path / "x", COMPRESSED[name](data) + b"\0" * 700 + b"junk")
    assert not source.whole
    assert source.damage is not None
    assert "other bytes than NUL follow" in source.damage.message


@pytest.mark.parametrize(("blocks", "whole", "codes"), [(0, False, []), (1, True, ["one-end-block"]), (2, True, [])])
def test_end_marks(tmp_path: Path, blocks: int, whole: bool, codes: list[str]) -> None:
    data = made([member("a", b"x" * 512)], tarfile.GNU_FORMAT)[:1024] + bytes(512 * blocks)
    items, source = read(tmp_path / "x", gzip.compress(data))
    assert (summary(items), source.whole) == ([("a", "blob")], whole)
    assert [problem.code for problem in source.warnings] == codes


def test_a_block_of_nuls_between_members_is_damage(tmp_path: Path) -> None:
    data = made([member("a", b"x" * 512), member("b", b"x" * 512)], tarfile.GNU_FORMAT)
    items, source = read(tmp_path / "x", data[:1024] + bytes(512) + data[1536:])
    assert summary(items) == [("a", "blob")]
    assert source.damage is not None
    assert "at byte 1,536 of its contents, after a" in source.damage.message


@pytest.mark.parametrize("name", ["zst", "xz"])
def test_compressed_without_a_checksum(tmp_path: Path, name: str) -> None:
    data = made([member("a", b"x" * 512)])
    bare = {
        "zst": zstandard.ZstdCompressor(write_checksum=False).compress(data),
        "xz": lzma.compress(data, check=lzma.CHECK_NONE),
    }[name]
    _, source = read(tmp_path / "x", bare)
    assert source.whole
    assert [problem.code for problem in source.warnings] == ["no-checksum"]


@pytest.mark.parametrize("name", ["zst", "xz"])
def test_a_window_that_is_too_large_comes_with_advice(tmp_path: Path, name: str) -> None:
    """The tarball may be whole: whoever compressed it, or who has it now, can make another of it."""
    large = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=large).compressobj()
    dictionary = {"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}
    data = {
        "zst": stream.compress(made([])) + stream.flush(),
        "xz": lzma.compress(made([]), filters=[dictionary]),
    }[name]
    _, source = read(tmp_path / "x", data)
    assert source.damage is not None
    assert "; if it is intact, decompress it" in source.damage.message


def contents(path: Path, data: bytes) -> list[tuple[str, bytes | None]] | None:
    """What a tarball says, None if it is damaged or no tarball."""
    try:
        items, source = read(path, data)
    except DataSetError:
        return None
    assert source.whole == (source.damage is None)
    return [(i.path, i.data if isinstance(i, Blob) else None) for i in items] if source.whole else None


CHECKED: dict[str, Callable[[bytes], bytes]] = {
    **COMPRESSED,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "zst-two-frames": lambda data: b"".join(
        zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(part)
        for part in (data[:700], data[700:])
    ),
}


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CHECKED)
def test_every_flipped_bit_and_every_cut_is_found(tmp_path: Path, name: str, step: int) -> None:
    texts = [b"Template-Type: ReDIF-Paper 1.0\nHandle: RePEc:aaa:ssssss:%d\n" % n for n in range(3)]
    plain = made([member(f"RePEc/aaa/{n}.rdf", text) for n, text in enumerate(texts)], tarfile.GNU_FORMAT)[:4096]
    data = CHECKED[name](plain)
    path = tmp_path / "x"
    good = contents(path, data)
    assert good is not None
    assert [text for _, text in good] == texts
    for cut in range(0, len(data), step):
        assert contents(path, data[:cut]) in (None, good), cut
    contents_at = {512 + 1024 * n + at for n, text in enumerate(texts) for at in range(len(text))}
    bits = [bit for bit in range(0, 8 * len(data), step) if name != "plain" or bit // 8 not in contents_at]
    for bit in bits:  # of a tar without compression nothing checks the contents
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert contents(path, bytes(flipped)) in (None, good), bit


@pytest.mark.parametrize("name", ["gz", "gz-two-streams", "zst", "zst-two-frames"])
@pytest.mark.parametrize("size", [1000, 2_000_000])
def test_what_comes_before_the_damage_is_read(tmp_path: Path, name: str, size: int) -> None:
    data = bytearray(CHECKED[name](made([member(f"{at}.rdf", str(at).encode() * size) for at in range(3)])))
    data[-1 if name.startswith("zst") else -7] ^= 1  # in the last checksum
    items, source = read(tmp_path / "x", bytes(data))
    assert not source.whole
    assert summary(items) == [("0.rdf", "blob"), ("1.rdf", "blob"), ("2.rdf", "blob")]


@pytest.mark.parametrize("name", ["plain", "gz", "zst", "xz", "bz2"])
def test_half_a_tarball(tmp_path: Path, name: str) -> None:
    import random

    noise = random.Random(1).randbytes(2_000_000)
    data = COMPRESSED[name](made([member(f"aaa/{at}.rdf", noise[at * 200_000 :][:200_000]) for at in range(10)]))
    for share in (0.6, 0.95):
        items, source = read(tmp_path / "x", data[: int(len(data) * share)])
        assert not source.whole
        assert source.damage is not None
        assert source.damage.code == "truncated"
        kinds = [kind for _, kind in summary(items)]
        assert kinds.count("truncated") <= 1
        assert "truncated" not in kinds[:-1]


def test_cut_between_two_members(tmp_path: Path) -> None:
    data = made([member("a", b"x" * 512), member("b", b"y" * 512)], tarfile.GNU_FORMAT)
    items, source = read(tmp_path / "x", data[:1024])
    assert summary(items) == [("a", "blob")]
    assert not source.whole


def test_damaged_checksum_of_the_gzip_stream(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(made([member("a", b"x"), member("b", bytes(2_000_000))])))
    data[-6] ^= 1
    items, source = read(tmp_path / "x", bytes(data))
    assert summary(items)[0] == ("a", "blob")
    assert not source.whole


def test_a_damaged_header(tmp_path: Path) -> None:
    data = bytearray(made([member("a", b"x"), member("b", b"y")], tarfile.GNU_FORMAT))
    data[1024 + 3] ^= 1
    items, source = read(tmp_path / "x", bytes(data))
    assert summary(items) == [("a", "blob")]
    assert source.damage is not None
    assert "checksum" in source.damage.message


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\0" * 2048, gzip.compress(b"hello", mtime=0), b"\x1f\x8bnonsense", b"BZh9nonsense", b"x" * 5000],
)
def test_what_is_no_tarball(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(DataSetError, match="cannot be read as a tarball"):
        open_source(tmp_path / "x", max_file=MAX)


def test_nothing_there(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path / "\0", Path("/dev/null")):
        with pytest.raises(DataSetError):
            open_source(path, max_file=MAX)


HOSTILE = [
    (member("../../etc/passwd", b"x"), "../../etc/passwd", "bad-name"),
    (member("aaa/../../x", b"x"), "aaa/../../x", "bad-name"),
    (member("/etc/passwd", b"x"), "/etc/passwd", "bad-name"),
    (member("aaa/l", b"", tarfile.SYMTYPE), "aaa/l", "link"),
    (member("aaa/h", b"", tarfile.LNKTYPE), "aaa/h", "link"),
    (member("aaa/c", b"", tarfile.CHRTYPE), "aaa/c", "bad-member"),
    (member("aaa/b", b"", tarfile.BLKTYPE), "aaa/b", "bad-member"),
    (member("aaa/f", b"", tarfile.FIFOTYPE), "aaa/f", "bad-member"),
    (member("aaa/s", b"x", b"S"), "aaa/s", "bad-member"),
    (member("aaa/?", b"x", b"Z"), "aaa/?", "bad-member"),
    (member("aaa/../d", b"", tarfile.DIRTYPE), "aaa/../d/", "bad-name"),
    (member("aaa/Górski-\udcff.rdf", b"x"), "aaa/Górski-\udcff.rdf", "bad-name"),
]


@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize(("hostile", "path", "code"), HOSTILE)
def test_hostile_members(
    tmp_path: Path, fmt: int, hostile: tuple[tarfile.TarInfo, bytes], path: str, code: str
) -> None:
    items, source = read(tmp_path / "x", made([member("a", b"1"), hostile, member("b", b"2")], fmt))
    assert summary(items) == [("a", "blob"), (path, code), ("b", "blob")]
    assert source.whole


def pax(name: str, headers: dict[str, str], data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    info, data = member(name, data)
    info.pax_headers = headers
    return info, data


@pytest.mark.parametrize(
    ("hostile", "path", "code"),
    [
        (pax("s", {"GNU.sparse.major": "1", "GNU.sparse.realsize": "99999999999"}), "s", "bad-member"),
        (pax("aaa/GNUSparseFile.7/s", {"GNU.sparse.name": "aaa/s", "GNU.sparse.realsize": "9"}), "aaa/s", "bad-member"),
        (pax("n", {"path": "aaa/nul\0.rdf"}), "aaa/nul\0.rdf", "bad-name"),
        (pax("big", {"comment": "x" * 2_000_000}), "big", "bad-member"),
        (pax("p", {"path": "/abs"}), "/abs", "bad-name"),
        (pax("e", {"path": "./"}), "e/", "directory"),
    ],
)
def test_hostile_pax_headers(tmp_path: Path, hostile: tuple[tarfile.TarInfo, bytes], path: str, code: str) -> None:
    items, source = read(tmp_path / "x", made([member("a", b"1"), hostile, member("b", b"2")]))
    if code == "directory":
        assert summary(items) == [("a", "blob"), ("b", "blob")]
    else:
        assert summary(items) == [("a", "blob"), (path, code), ("b", "blob")]
    assert source.whole


@pytest.mark.parametrize(("listing", "code"), [("Y1.rdf\0N2.rdf\0\0", "bad-member"), ("Y1.rdf\0\0", "directory")])
def test_incremental_tarballs_say_what_they_omit(tmp_path: Path, listing: str, code: str) -> None:
    """In both forms of GNU tar; a directory that was not dumped whole is no evidence that files are absent."""
    old, data = member("aaa", listing.encode())
    old.type = b"D"
    new, _ = pax("aaa/", {"GNU.dumpdir": listing}, b"")
    new.type = tarfile.DIRTYPE
    for directory in ((old, data), (new, b"")):
        items, source = read(tmp_path / "x", made([directory, member("aaa/1.rdf", b"1")]))
        assert [(one.path, one.problem.code if isinstance(one, Unread) else "directory") for one in items[:1]] == [
            ("aaa/", code)
        ]
        assert len(items) == 2
        assert source.whole


@pytest.mark.parametrize(
    "data",
    [b"9 path=ab\n", b"path=a\n", b"11 path=abc", b"8 patha\n", b"99999 path=a\n", b"12 size=-5x\n", b"12 size=abc\n"],
)
def test_malformed_pax_records(data: bytes) -> None:
    with pytest.raises(Damaged):
        tarball.parse_pax(data)


def test_pax_values_count(tmp_path: Path) -> None:
    assert tarball.parse_pax(b"19 mtime=1234.5678\n").fields == {"mtime": 1234}
    assert tarball.parse_pax(b"12 mtime=-5\n\0\0").fields == {"mtime": -5}
    assert tarball.parse_pax(b"13 size=1234\n") == ({"size": 1234}, "")
    items, source = read(tmp_path / "x", made([pax("short", {"path": LONG, "mtime": "77.5"})]))
    assert summary(items) == [(LONG, "blob")]
    assert source.newest == 77


def test_times_in_the_future_do_not_date_a_data_set(tmp_path: Path) -> None:
    _, source = read(tmp_path / "x", made([member("a", mtime=500), member("b", mtime=2**34)], tarfile.GNU_FORMAT))
    assert source.newest == 500


def test_one_path_twice(tmp_path: Path) -> None:
    items, _ = read(tmp_path / "x", made([member("a", b"1"), member("b", b"2"), member("./a", b"3")]))
    assert [(b.path, b.data, b.member) for b in items if isinstance(b, Blob)] == [
        ("a", b"1", 1),
        ("b", b"2", 2),
        ("a", b"3", 3),
    ]


def test_too_large_files_are_not_read(tmp_path: Path) -> None:
    text, film = b"Some text\n" * 100, b"\0\1\2\3" * 500
    members = [member("a.rdf", film), member("b", text), member("film.mov", film), member("c", b"Template-Type: x\n")]
    items, source = read(tmp_path / "x", made(members), max_file=100)
    assert summary(items) == [(name, "too-large") for name in ("a.rdf", "b", "film.mov")] + [("c", "blob")]
    assert source.files == 1
    assert source.whole


def test_a_damaged_bomb_costs_no_memory(tmp_path: Path) -> None:
    packer = bz2.BZ2Compressor()
    packed = bytearray(b"".join(packer.compress(bytes(1_000_000)) for _ in range(100)) + packer.flush())
    packed[-3] ^= 1
    (tmp_path / "x").write_bytes(packed)
    with open(tmp_path / "x", "rb") as file:
        tracemalloc.start()
        with pytest.raises(Damaged):
            for _ in chunks(Raw(file)):
                pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 5_000_000


def test_a_bomb_costs_no_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("aaa/bomb.rdf")
    info.size = 300_000_000
    with gzip.open(tmp_path / "x", "wb", compresslevel=1) as out:
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(300):
            out.write(bytes(1_000_000))
        out.write(bytes(info.size % 512 and 512 - info.size % 512) + bytes(1024))
    tracemalloc.start()
    with open_source(tmp_path / "x", max_file=10_000_000) as source:
        items = list(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert summary(items) == [("aaa/bomb.rdf", "too-large")]
    assert source.whole
    assert peak < 5_000_000


def test_sizes_in_base_256() -> None:
    info = tarfile.TarInfo("big")
    info.size = 20_000_000_000
    assert tarball.parse_header(info.tobuf(tarfile.GNU_FORMAT)).size == 20_000_000_000
    info.mtime = -5
    assert tarball.parse_header(info.tobuf(tarfile.GNU_FORMAT)).mtime < 0


@given(st.binary(min_size=0, max_size=600))
def test_any_block_is_a_header_or_damaged(block: bytes) -> None:
    with suppress(Damaged):
        tarball.parse_header(block)


@given(st.integers(0, 511), st.integers(0, 255))
def test_a_header_with_a_valid_checksum_and_anything_in_it(at: int, value: int) -> None:
    block = bytearray(member("aaa/1.rdf", b"x")[0].tobuf(tarfile.USTAR_FORMAT))
    block[at] = value
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + sum(block[156:]) + 256)
    with suppress(Damaged):
        tarball.parse_header(bytes(block))


@given(st.binary(max_size=80))
def test_any_pax_data(data: bytes) -> None:
    with suppress(Damaged):
        tarball.parse_pax(data)


@given(st.binary(max_size=60))
def test_any_name(name: bytes) -> None:
    path, bad = tarball.clean_name(name)
    if not bad:
        assert "\0" not in path
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        assert "//" not in path
