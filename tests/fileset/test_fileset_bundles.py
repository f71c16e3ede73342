"""Bundles: one download for everything, kept as it is, with its interior as the manifest."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import json
import signal
import struct
import tarfile
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner
from failpoint import killed_at
from fileset_platform import Platform, zenodo
from fileset_samples import DATAVERSE
from fileset_support import Filesets, make_archive
from gather_support import archec_cli, archec_inline

from archec.archive.budget import Budget
from archec.catalogue.model import FilesetManifestFile
from archec.cli.fileset import fileset
from archec.cli.get import get
from archec.errors import Exit, NotHeld
from archec.fileset import strategies
from archec.fileset.context import IngestOptions, RunEnded
from archec.fileset.interior import BROKEN, Bounds, interior, open_member
from archec.fileset.json_lines import IngestResult
from archec.fileset.model import IngestRequest, IngestStrategy
from archec.fileset.run import Line, due_requests, run_ingest
from archec.progress import Meter

LARGE = Bounds(1000, 10_000_000)
PROJECT = "/openicpsr/project/7/version/V1"
PAGE = b'<meta name="DC.identifier" content="10.3886/E7V1"><meta name="DC.title" content="Data and Code">'


def zipped(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in files.items():
            bundle.writestr(name, data)
    return target.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as bundle:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            bundle.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        bundle.addfile(link)
    return target.getvalue()


FILES = {"Code/run.do": b"use data\n", "Data/a.csv": b"a,b\n1,2\n", "empty": b""}


@pytest.mark.parametrize("make", [zipped, tarred])
def test_the_interior_is_read_without_unpacking(make: object) -> None:
    found = interior(io.BytesIO(make({**FILES, "MANIFEST.TXT": b"no file"})), LARGE)  # type: ignore[operator]
    whole = [file for file in found if file.status == "success"]
    assert [(file.path, file.size) for file in whole] == [(name, len(data)) for name, data in FILES.items()]
    assert [file.sha256 for file in whole] == [hashlib.sha256(data).hexdigest() for data in FILES.values()]
    assert all(file.md5 and file.sha1 for file in whole)
    with open_member(io.BytesIO(make(FILES)), "Data/a.csv") as stream:  # type: ignore[operator]
        assert stream.read() == FILES["Data/a.csv"]


def test_files_with_one_path_are_files_of_their_own() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as bundle:
        bundle.writestr("p", b"first")
        with pytest.warns(UserWarning, match="Duplicate"):
            bundle.writestr("p", b"x")
    data = target.getvalue()
    found = interior(io.BytesIO(data), LARGE)
    assert [(file.path, (file.extra or {}).get("member")) for file in found] == [("p", None), ("p", 2)]
    for number, content in ((1, b"first"), (2, b"x")):
        with open_member(io.BytesIO(data), "p", number) as stream:
            assert stream.read() == content


def test_hostile_names_encrypted_and_broken_members_are_told_of() -> None:
    data = bytearray(zipped({"../../evil": b"x", "secret": b"y" * 100, "good": b"z"}))
    at = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)
    data[at + 8] |= 1  # the flag of an encrypted member, in the directory
    found = {file.path: file for file in interior(io.BytesIO(bytes(data)), LARGE)}
    assert found["../../evil"].status == "unsafe-path"
    assert (found["secret"].status, found["secret"].extra) == ("not-processed", {"error": "encrypted"})
    assert found["good"].status == "success"


@pytest.mark.parametrize("offset", [2, 30])
def test_a_damaged_header_of_a_zip_is_that_of_one_file(offset: int) -> None:
    data = bytearray(zipped({"Code/run.do": b"use data\n", "Daten/ä.csv": b"a,b\n1,2\n", "empty": b""}))
    data[data.index(b"PK\x03\x04", 1) + offset] = 0xFF
    found = interior(io.BytesIO(bytes(data)), LARGE)
    assert [file.status for file in found] == ["success", "mismatch", "success"]
    with open_member(io.BytesIO(bytes(data)), "empty") as stream:
        assert stream.read() == b""


def bomb(kind: str) -> bytes:
    """What unpacks to more than 200 MB, where a reader of its lists needs all of that in memory."""
    zeros, target = bytes(1 << 20), io.BytesIO()
    if kind == "directory":
        entry = b"PK\x01\x02" + bytes(24) + b"\x01" + bytes(17) + b"p"
        count = 100_000
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, count * len(entry), 30, 0)
        return b"PK\x03\x04" + bytes(26) + entry * count + end
    info = tarfile.TarInfo("p")
    if kind == "headers":
        info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1
        return gzip.compress((info.tobuf() + b"n".ljust(512, b"\0")) * 3000)
    if kind in ("shared", "names"):
        with tarfile.open(fileobj=target, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as tar:
            for n in range(60):
                if kind == "shared":
                    target_of = tar.fileobj
                    assert target_of is not None
                    target_of.write(info.create_pax_global_header({f"k{n}": "v" * 500_000}))
                else:
                    tar.addfile(tarfile.TarInfo(f"{n}" + "n" * 900_000))
        return target.getvalue()
    if kind == "directories":
        info.type = tarfile.DIRTYPE
        return gzip.compress(info.tobuf() * 200_000, 1)
    info.type, info.size = {"pax": tarfile.XHDTYPE, "name": tarfile.GNUTYPE_LONGNAME}[kind], 200 << 20
    with gzip.open(target, "wb", 1) as packed:
        packed.write(info.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(200):
            packed.write(zeros)
    return target.getvalue()


@pytest.mark.parametrize("kind", ["directory", "directories", "pax", "name", "headers", "shared", "names"])
def test_a_bomb_in_the_lists_of_a_bundle_takes_no_memory(kind: str) -> None:
    data = io.BytesIO(bomb(kind))
    tracemalloc.start()
    try:
        with pytest.raises(BROKEN):
            interior(data, Bounds(1000, 1 << 30))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_read_in_steps_and_their_damage_is_that_of_a_file(method: int) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as bundle:
        for name, data in {"p": bytes(3_000_000), "q": hashlib.shake_256().digest(1000), "r": b"r"}.items():
            bundle.writestr(name, data)
    whole = target.getvalue()
    assert [(file.size, file.status) for file in interior(io.BytesIO(whole), LARGE)] == [
        (3_000_000, "success"), (1000, "success"), (1, "success"),
    ]  # fmt: skip
    at = whole.index(b"PK\x03\x04", 4) + 31
    damaged = whole[: at + 100] + bytes(20) + whole[at + 120 :]
    assert [file.status for file in interior(io.BytesIO(damaged), LARGE)] == ["success", "mismatch", "success"]


def test_a_tar_file_is_read_to_its_end() -> None:
    plain = gzip.decompress(tarred({**FILES, "last.zip": zipped({"inner": b"x"})}))
    paths = ["Code/run.do", "Data/a.csv", "empty", "last.zip", "link"]
    assert [file.path for file in interior(io.BytesIO(plain), LARGE)] == paths
    damaged = plain.replace(b"Data/a.csv", b"Data/b.csv")
    sparse = tarfile.TarInfo("p")
    sparse.type = tarfile.GNUTYPE_SPARSE
    broken = (damaged, plain.rstrip(b"\0"), plain[:1024], sparse.tobuf() + bytes(1024), gzip.compress(plain)[:-4])
    for data in broken:
        with pytest.raises(BROKEN):
            interior(io.BytesIO(data), LARGE)


def test_zip64_is_read() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as bundle, bundle.open("p.csv", "w", force_zip64=True) as stream:
        stream.write(b"a,b")
    data = bytearray(target.getvalue())
    where, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    directory = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, end - where, where)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
    data[end:] = directory + locator + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, *[2**32 - 1] * 2, 0)
    (file,) = interior(io.BytesIO(bytes(data)), LARGE)
    assert (file.path, file.size, file.status) == ("p.csv", 3, "success")


@pytest.mark.parametrize(
    ("data", "bounds"),
    [
        (zipped({"bomb": bytes(5_000_000)}), Bounds(10, 1_000_000)),
        (zipped({str(n): b"" for n in range(11)}), Bounds(10, 1000)),
        (b"no bundle at all", LARGE),
        (b"", LARGE),
        (zipped(FILES)[:-30], LARGE),
        (b"PK\x03\x04" + bytes(100), LARGE),
    ],
)
def test_bombs_and_what_is_no_bundle_are_refused(data: bytes, bounds: Bounds) -> None:
    with pytest.raises(BROKEN):
        interior(io.BytesIO(data), bounds)


@pytest.mark.parametrize("data", [b"", PAGE, zipped(FILES)[:-9], tarred(FILES)[:-30]])
def test_a_member_of_what_is_no_bundle_or_a_damaged_one_is_not_held(data: bytes) -> None:
    with pytest.raises(NotHeld, match="x: "), open_member(io.BytesIO(data), "x"):
        pass


def test_a_member_with_damaged_bytes_is_not_held() -> None:
    data = bytearray(zipped(FILES))
    data[data.index(b"Code/run.do") + 13] ^= 0xFF  # within the compressed bytes
    with open_member(io.BytesIO(bytes(data)), "Code/run.do") as member, pytest.raises(NotHeld, match="Code/run"):
        member.read()


@pytest.fixture
def icpsr(folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Filesets:
    """An archive whose openICPSR is the played platform, with the cookie of a session."""
    monkeypatch.setenv("TEST_COOKIE", "session=hush-hush")
    platforms = {"openicpsr": {"hosts": [platform.host], "rate": "none", "token": "TEST_COOKIE"}}
    platform.bodies[f"{PROJECT}/view"] = PAGE
    platform.files[f"{PROJECT}/download/project"] = zipped(FILES)
    return make_archive(folder, platform, fileset={"platforms": platforms, "resolver": platform.url})


@pytest.mark.parametrize("is_packed", [False, True])
def test_what_can_only_be_had_as_a_bundle_is_kept_as_one(
    icpsr: Filesets, platform: Platform, is_packed: bool
) -> None:
    url = f"{platform.url}{PROJECT}/view"
    if is_packed:
        where, packed = f"{PROJECT}/download/project", gzip.compress(zipped(FILES))
        platform.behaviours[where] = lambda handler, data: handler.answer(200, packed, **{"content-encoding": "gzip"})
    (result,) = icpsr.ingest(url)
    assert (result.status, result.ingest_strategy, result.platform_id) == ("success", "web-fileset-bundled", "7V1")
    assert [file.path for file in result.manifest or ()] == list(FILES)
    assert result.fileset_bundle is not None
    assert (result.fileset_bundle.file_meta or {})["size_bytes"] == len(zipped(FILES))
    assert platform.headers[-1]["cookie"] == "session=hush-hush"
    platform.requests.clear()
    (again,) = icpsr.ingest(url)
    assert (again.status, again.fileset_bundle) == ("success-existing", result.fileset_bundle)
    assert (result.fileset_bundle.cdx or {})["digest"]
    assert platform.requests == ["/robots.txt", f"{PROJECT}/view"]
    bundle = (result.fileset_bundle.terminal or {})["terminal_url"]
    for name in (f"{bundle}!/Data/a.csv", f"{result.fileset}!/Data/a.csv", "doi:10.3886/e7v1!/Data/a.csv",
                 "10.3886/E7!/Data/a.csv"):  # fmt: skip
        found = CliRunner().invoke(get, [name, "--config", str(icpsr.config.file)])
        assert found.stdout_bytes == FILES["Data/a.csv"], found.output
    words = ["export", url, "--as", "bagit", "--fetch", str(icpsr.config.base / "bag")]
    found = CliRunner().invoke(fileset, [*words, "--config", str(icpsr.config.file)])
    assert "have no URLs" in str(found.exception)
    assert archec_inline(icpsr.config, "fileset", "export", url, "--as", "urls", icpsr.config.base / "urls").code == 0
    assert (icpsr.config.base / "urls" / "urls.txt").read_text() == f"{bundle}\n"
    for path in Path(icpsr.config.base).rglob("*"):
        assert not path.is_file() or b"hush-hush" not in path.read_bytes()


def test_a_page_in_place_of_a_bundle_means_that_the_session_is_over(icpsr: Filesets, platform: Platform) -> None:
    platform.files[f"{PROJECT}/download/project"] = b"<!DOCTYPE html><html>Log in</html>"
    (result,) = icpsr.ingest(f"{platform.url}{PROJECT}/view")
    assert (result.status, result.platform_id, result.file_count) == ("platform-restricted", "7V1", None)


def test_a_bundle_with_more_in_it_than_the_limits_is_refused_as_such(icpsr: Filesets, platform: Platform) -> None:
    url = f"{platform.url}{PROJECT}/view"
    assert icpsr.ingest(url, max_files=2)[0].status == "too-many-files"
    assert icpsr.ingest(url, max_total=len(zipped(FILES)))[0].status == "success"
    platform.files[f"{PROJECT}/download/project"] = zipped({"bomb": bytes(5_000_000)})
    assert icpsr.ingest(url, max_total=1_000_000, force=True)[0].status == "too-large-size"


def test_a_bundle_that_cannot_be_read_is_due_again(icpsr: Filesets, platform: Platform) -> None:
    where = f"{PROJECT}/download/project"
    whole, platform.files[where] = platform.files[where], b"PK\3\4 and no more"
    (result,) = icpsr.ingest(f"{platform.url}{PROJECT}/view")
    assert result.status == "bundle-incomplete"
    platform.files[where] = whole
    ((_, request),) = due_requests(icpsr.config, int(time.time() + icpsr.config.fetch.revisit_min) + 1)
    assert icpsr.run([request.base_url], lambda one, file: None).statuses == {"success": 1}


def test_a_bundle_that_lacks_files_or_has_others_says_which(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p.csv": 100, "q.csv": 200})
    archive = f"{platform.url}/api/records/7/files-archive"
    platform.bodies["/api/records/7"]["links"]["archive"] = archive
    files = {path.rpartition("/files/")[2].removesuffix("/content"): data for path, data in platform.files.items()}
    platform.files["/api/records/7/files-archive"] = zipped({"p.csv": files["p.csv"]})
    (result,) = filesets.ingest(url, strategy=IngestStrategy.WEB_FILESET_BUNDLED)
    assert (result.status, result.hit) == ("bundle-incomplete", False)
    assert result.due is not None, "a new version is looked for"
    assert [(file.path, file.status) for file in result.manifest or ()] == [
        ("p.csv", "success"), ("q.csv", "bundle-incomplete"),
    ]  # fmt: skip
    platform.files["/api/records/7/files-archive"] = zipped({"all/p.csv": b"p" * 100, "all/Q.csv": files["q.csv"]})
    (result,) = filesets.ingest(url, strategy=IngestStrategy.WEB_FILESET_BUNDLED)
    assert (result.status, result.message) == ("success-partial", "all/p.csv: mismatch-md5")
    assert [file.status for file in result.manifest or ()] == ["mismatch-md5", "success"]
    platform.files["/api/records/7/files-archive"] = zipped(files)
    (result,) = filesets.ingest(url, strategy=IngestStrategy.WEB_FILESET_BUNDLED)
    assert result.status == "success"


def test_the_end_of_a_run_does_not_wait_for_a_large_bundle(
    icpsr: Filesets, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[BaseException] = []

    def endless(bundle: BinaryIO, bounds: Bounds) -> list[FilesetManifestFile]:
        until = time.monotonic() + 30
        try:
            while time.monotonic() < until:
                bundle.seek(0)
                bundle.read(1)
        except BaseException as error:
            ends.append(error)
            raise
        return []

    monkeypatch.setattr(strategies, "interior", endless)
    results: list[IngestResult] = []
    lines: list[Line] = [("", IngestRequest(f"{platform.url}{PROJECT}/view"))]
    run_ingest(icpsr.config, lines, IngestOptions(), Meter(), lambda result, _: results.append(result),
               budget=Budget(seconds=2))  # fmt: skip
    assert ([one.status for one in results], [type(end) for end in ends]) == (["budget"], [RunEnded])


def test_a_bundle_is_received_once_however_often_it_is_not_read_to_its_end(
    icpsr: Filesets, platform: Platform
) -> None:
    url = f"{platform.url}{PROJECT}/view"
    for batch in (3, 4, 4):
        done = archec_cli(icpsr.config, "fileset", "ingest", url, env=killed_at(f"journal.before-append:{batch}"))
        assert done.code == -signal.SIGKILL
        with icpsr.archive() as archive:
            assert not list(archive.catalogue.all("fileset"))
            assert len(list(archive.catalogue.all("fobi"))) == 1
    assert icpsr.ingest(url)[0].status == "success"
    assert platform.sent[f"{PROJECT}/download/project"] == len(zipped(FILES))
    assert archec_inline(icpsr.config, "check").code == 0


def test_nothing_is_selected_of_a_bundle_and_it_says_so(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p.csv": 100, "q.csv": 200})
    platform.bodies["/api/records/7"]["links"]["archive"] = f"{platform.url}/api/records/7/files-archive"
    files = {path: platform.files[f"/api/records/7/files/{path}/content"] for path in ("p.csv", "q.csv")}
    for kept, status in (({"p.csv": files["p.csv"]}, "bundle-incomplete"), (files, "success"),
                         (files, "success-existing")):  # fmt: skip
        platform.files["/api/records/7/files-archive"] = zipped(kept)
        (result,) = filesets.ingest(url, strategy=IngestStrategy.WEB_FILESET_BUNDLED, include=("p.csv",))
        assert (result.status, result.file_count) == (status, 2)
    assert result.message == "all files are kept, since they are one download: none can be selected"


def test_a_bundle_with_encrypted_files_only_is_no_success(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p.csv": 100})
    platform.bodies["/api/records/7"]["links"]["archive"] = f"{platform.url}/api/records/7/files-archive"
    data = bytearray(zipped({"p.csv": b"p" * 100}))
    data[data.index(b"PK\x01\x02") + 8] |= 1  # the flag of an encrypted member, in the directory
    platform.files["/api/records/7/files-archive"] = bytes(data)
    asked = ("fileset", "ingest", url, "--strategy", "web-fileset-bundled")
    for option, code in (((), Exit.OPERATOR_ERROR), (("--dry-run",), Exit.DONE)):
        done = archec_inline(filesets.config, *asked, *option)
        assert (done.code, json.loads(done.out)["status"]) == (code, "not-processed")


def test_a_bundle_without_restricted_files_is_not_the_whole(folder: Path, platform: Platform) -> None:
    platforms = {"dataverse": {"hosts": [platform.host], "rate": "none"}}
    filesets = make_archive(folder, platform, fileset={"platforms": platforms})
    body = copy.deepcopy(DATAVERSE)
    rows = body["data"]["latestVersion"]["files"]
    platform.bodies["/api/datasets/:persistentId/"] = body
    platform.files["/api/access/dataset/:persistentId/"] = zipped({"data/p.xlsx": b"xyz", "MANIFEST.TXT": b"not all"})

    def ingested() -> tuple[str, list[str | None]]:
        url = f"{platform.url}/dataset.xhtml?persistentId=doi:10.7910/DVN/ABCDEF"
        (result,) = filesets.ingest(url, strategy=IngestStrategy.WEB_FILESET_BUNDLED)
        assert result.hit == (result.status.startswith("success") and result.status != "success-partial")
        return result.status, [file.status for file in result.manifest or ()]

    assert ingested() == ("success-partial", ["success", "platform-restricted", "platform-restricted"])
    platform.sent.clear()
    assert ingested() == ("success-partial", ["success", "platform-restricted", "platform-restricted"])
    assert not platform.sent, "another bundle would not have them either"
    for row in rows:
        row["restricted"] = False
        row["dataFile"].pop("embargo", None)
        row["dataFile"].pop("checksum", None)
    platform.files["/api/access/dataset/:persistentId/"] = zipped(
        {"data/p.xlsx": b"xyz", "r.txt": b"abd", "e.txt": b"abe"}
    )
    assert ingested() == ("success", ["success"] * 3)
