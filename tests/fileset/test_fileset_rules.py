"""The pure rules of filesets: strategies, paths, checksums, manifests, requests, statuses."""

from __future__ import annotations

import json
import re
import tracemalloc
import unicodedata
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from archec.catalogue.documents import canonical
from archec.catalogue.model import FilesetManifestFile
from archec.config import FilesetConfig
from archec.errors import BadName
from archec.fileset import json_lines
from archec.fileset.checksums import Checksums, checksums, mismatch
from archec.fileset.fields import clean, parse
from archec.fileset.finding import identifier_of, url_of
from archec.fileset.manifest import FileSelection, Manifest, as_kept, decode, encode, parts, set_safe_paths
from archec.fileset.model import FilesetPlatformItem, IngestStrategy
from archec.fileset.paths import safe_paths, unsafe
from archec.fileset.platforms.registry import Registry
from archec.fileset.redaction import public_body
from archec.fileset.status import BadRequest, PlatformError, Status, overall
from archec.fileset.strategy_choice import choose_strategy, chose_strategy, too_much
from archec.ids import FilesetId, parse_fileset

GIB, MIB = 1 << 30, 1 << 20
ABC = Checksums("900150983cd24fb0d6963f7d28e17f72", "a9993e364706816aba3e25717850c26c9cd0d89d", "0" * 64)


def item(*sizes: int | None, bundle_only: bool = False) -> FilesetPlatformItem:
    files = [FilesetManifestFile(f"f{n}", size) for n, size in enumerate(sizes)]
    return FilesetPlatformItem(platform_name="x", manifest=files, bundle_only=bundle_only)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([5], "web-file"),
        ([128 * MIB], "web-file"),
        ([128 * MIB + 1], "archiveorg-file"),
        ([None], "web-file"),
        ([1] * 20, "web-fileset"),
        ([1] * 21, "archiveorg-fileset"),
        ([GIB // 8] * 8, "web-fileset"),
        ([GIB // 8] * 8 + [1], "archiveorg-fileset"),
        ([128 * MIB, 1], "web-fileset"),
        ([128 * MIB + 1, 1], "archiveorg-fileset"),
    ],
)
def test_the_strategy_follows_from_count_and_sizes(sizes: list[int | None], expected: str) -> None:
    assert choose_strategy(item(*sizes)).value == chose_strategy(item(*sizes)).value == expected


def test_only_what_has_no_other_download_is_bundled() -> None:
    assert choose_strategy(item(bundle_only=True)).value == "web-fileset-bundled"
    assert choose_strategy(item(GIB + 1, bundle_only=True)).value == "archiveorg-fileset-bundled"


def test_more_than_the_limits_is_refused_and_equal_passes() -> None:
    policy = FilesetConfig()
    assert too_much(item(*[1] * 200), policy) is None
    assert too_much(item(*[1] * 201), policy) is Status.TOO_MANY_FILES
    assert too_much(item(64 * GIB), policy) is None
    assert too_much(item(64 * GIB, 1), policy) is Status.TOO_LARGE_SIZE
    assert too_much(item(None, 64 * GIB), policy) is None


# -- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a\0b", "a\\b", "\\ud80", "C:x", "dir/"])
def test_paths_that_could_leave_the_folder_are_unsafe(path: str) -> None:
    assert unsafe(path)


def test_paths_that_clash_become_different_ones() -> None:
    sent = ["a.txt", "A.TXT", "a.txt", "e\u0301", "\u00e9", "x", "x/y", "CON", "nul.txt", "b" * 300 + ".csv", "d//e"]
    sent += ["d/e", clean("\ud800x")]
    assert not unsafe(sent[-1]), "a code point that is no character"
    found = list(safe_paths(sent))
    assert [one.path for one in found[:3]] == ["a.txt", "A (2).TXT", "a (3).txt"]
    assert found[0].problem == ""
    assert all(one.problem for one in found[1:3])
    folded = [unicodedata.normalize("NFC", one.path.casefold()) for one in found]
    assert len(set(folded)) == len(folded)
    assert found[7].path == "_CON"
    assert found[9].path.endswith(".csv")
    assert found[-1].path == "_ud800x"


def test_directories_have_one_spelling() -> None:
    sent = ["Data/a.csv", "data/b.csv", "DATA/A.csv", "Data/E\u0301/x", "data/\u00c9/y", "data"]
    found = list(safe_paths(sent))
    assert [one.path for one in found] == [
        "Data/a.csv", "Data/b.csv", "Data/A (2).csv", "Data/\u00c9/x", "Data/\u00c9/y", "data (2)",
    ]  # fmt: skip
    assert [bool(one.problem) for one in found] == [False, True, True, True, True, True]


def test_a_directory_with_the_name_of_a_file_remains_one() -> None:
    found = safe_paths(["data", "data/a", "data/b", "Data/c/d", "data (2)", "data/data (2)/e"])
    kept = ["data (2)/a", "data (2)/b", "data (2)/c/d", "data (2) (2)", "data (2)/data (2)/e"]
    assert [one.path for one in found] == ["data", *kept]


@pytest.mark.parametrize(("sent", "safe"), [
    ("-", "_-"), ("~$data.xlsx", "_~$data.xlsx"), ("$HOME/x", "_$HOME/x"), ("%a%.csv", "_%a%.csv"),
    ("nb\u00a0", "nb"), ("x\u3000/y", "x/y"), ("-\u3000", "_-"), ("~" * 255, "_" + "~" * 254),
    ("COM\u00b9", "_COM\u00b9"), ("a/lpt\u00b2.csv", "a/_lpt\u00b2.csv"), ("CONIN$", "_CONIN$"),
    ("nul .txt", "_nul .txt"),
])  # fmt: skip
def test_paths_that_programs_take_for_something_else_are_changed(sent: str, safe: str) -> None:
    (found,) = safe_paths([sent])
    assert found.path == safe
    assert found.problem
    assert list(safe_paths(["-rf", "a/~b", "100%.csv"])) == [("-rf", ""), ("a/~b", ""), ("100%.csv", "")]


@given(st.lists(st.text(st.sampled_from("aA/.-~$%\u00a0é\u0301 :xX\u202e"), min_size=1, max_size=8), max_size=12))
def test_safe_paths_are_unique_and_stay_inside(paths: list[str]) -> None:
    sent = [path for path in paths if not unsafe(path)]
    found = [one.path for one in safe_paths(sent)]
    folded = [unicodedata.normalize("NFC", path).casefold() for path in found]
    assert len(set(folded)) == len(folded)
    for path in found:
        assert not unsafe(path)
        assert all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in path.split("/"))
    folders = {path.rpartition("/")[0] for path in folded}
    assert not folders.intersection(folded)
    spelt = {path.rpartition("/")[0] for path in found}
    assert len({unicodedata.normalize("NFC", path).casefold() for path in spelt}) == len(spelt)
    assert list(safe_paths(found)) == [(path, "") for path in found]


def test_ten_thousand_files_of_one_name_are_quick() -> None:
    assert len({one.path for one in safe_paths(["same.txt"] * 10_000)}) == 10_000


# -- checksums ------------------------------------------------------------------------------------


def test_checksums_are_read_in_every_spelling() -> None:
    assert checksums(f"md5:{ABC.md5}").md5 == checksums(f"MD5:{ABC.md5}".upper()).md5 == ABC.md5
    assert checksums(ABC.md5).md5 == checksums(ABC.md5, kind="md5").md5 == ABC.md5
    assert checksums(f"SHA-1:{ABC.sha1}").sha1 == checksums(ABC.sha1).sha1 == ABC.sha1
    assert checksums(f"sha256:{ABC.sha256}", kind="sha-256").sha256 == ABC.sha256
    assert checksums("", None, "md5:", "md5:xyz", "sha1:" + "0" * 32) == Checksums()
    assert checksums("SHA-512:" + "A" * 128).other == checksums("a" * 128).other == "sha512:" + "a" * 128
    assert checksums("", ABC.md5, kind="md5").md5 == ABC.md5


def test_bytes_are_checked_against_all_that_is_told() -> None:
    whole = FilesetManifestFile("p", 3, *ABC[:3])
    longer = replace(whole, size=4)
    assert mismatch(whole, whole) is None
    assert mismatch(whole, longer) is Status.MISMATCH_SIZE
    assert mismatch(whole, replace(whole, md5="0" * 32)) is Status.MISMATCH_MD5
    assert mismatch(whole, replace(whole, sha1="0" * 40)) is Status.MISMATCH_SHA1
    assert mismatch(whole, replace(whole, sha256="1" * 64)) is Status.MISMATCH_SHA256
    assert mismatch(FilesetManifestFile("p"), whole) is None
    soft = FilesetManifestFile("p", 3, "0" * 32, extra={"soft_checksum": True})
    assert mismatch(soft, whole) is None
    assert mismatch(soft, longer) is Status.MISMATCH_SIZE


# -- manifests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 3, 500, 1001])
def test_a_manifest_comes_back_from_its_bytes(count: int) -> None:
    files = tuple(FilesetManifestFile(f"f{n}", n, extra={"a": [1]}) for n in range(count))
    manifest = Manifest(
        fileset="fileset:z:h:1", platform_name="z", platform_domain="h", platform_id="1", manifest=files
    )
    data = b"".join(encode(manifest))
    assert data == canonical(manifest)
    assert decode(data, "here", Manifest) == manifest


def test_a_large_answer_is_read_row_by_row() -> None:
    row = {"id": "x" * 32, "key": "k" * 30, "checksum": f"md5:{'0' * 32}", "links": {"self": "https://h/" + "p" * 60}}
    body = json.dumps({"id": 7, "files": [{**row, "size": n} for n in range(20_000)]}).encode()
    tracemalloc.start()
    try:
        assert sum(row["size"].whole_or_none() or 0 for row in parse(body)["files"].items()) == 199_990_000
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert public_body(body) is body
        assert max(most, tracemalloc.get_traced_memory()[1] / 2) < len(body)
    finally:
        tracemalloc.stop()
    assert parse(body).raw == json.loads(body)
    broken = body.replace(b'"size": 19000', b'"size": "\xff"')
    with pytest.raises(PlatformError, match=r"files\[19000\]: is not JSON"):
        list(parse(broken)["files"].items())
    odd = body.replace(b'"size": 19000', b'"size": "\n\\ud800"')  # msgspec does not read that
    assert list(parse(odd)["files"].items())[19_000]["size"].text() == "\n\\ud800"


def test_its_files_are_lines_of_some_hundred() -> None:
    files = [FilesetManifestFile(f"f{n}") for n in range(1201)]
    found = list(parts("0" * 64, files))
    assert [part.first for part in found] == [0, 500, 1000]
    assert [file for part in found for file in part.files] == files


def test_files_are_chosen_by_globs_and_unsafe_ones_are_not_fetched() -> None:
    paths = ["data/p.csv", "data/q.dta", "../x.csv", "readme.txt"]
    whole = FilesetPlatformItem(platform_name="x", manifest=[FilesetManifestFile(path) for path in paths])
    set_safe_paths(whole.manifest or [])
    found = list(filter(FileSelection(["*.csv", "readme*"], ["readme*"]).wants, whole.manifest or []))
    assert [file.path for file in found] == ["data/p.csv", "../x.csv"]
    assert [file.status for file in found] == [None, "unsafe-path"]
    assert found[0].extra == {"safe_path": "data/p.csv"}


def test_what_is_told_again_is_the_same() -> None:
    told = [FilesetManifestFile("p", 3, ABC.md5, platform_url="http://h/p")]
    told.append(FilesetManifestFile("l", status="skipped-link-only"))
    kept = [
        FilesetManifestFile("p", 3, *ABC[:3], mimetype="text/csv", status="success", platform_url="http://h/p"),
        told[1],
    ]
    assert as_kept(told, kept) == kept
    replace = msgspec.structs.replace
    assert not as_kept([replace(told[0], size=4), told[1]], kept)
    assert not as_kept([replace(told[0], md5="0" * 32), told[1]], kept)
    assert not as_kept(told[:1], kept)
    assert not as_kept(told, [replace(kept[0], status="mismatch-md5"), kept[1]])


@pytest.mark.parametrize(
    ("statuses", "single", "expected"),
    [
        (["success", "exists"], False, "success"),
        (["success"], True, "success-file"),
        (["success", "mismatch-md5"], False, "success-partial"),
        (["success", None], False, "success-partial"),
        (["unsafe-path", "success"], False, "success-partial"),
        (["error-platform-download", "mismatch-md5"], False, "error-platform-download"),
        ([], False, "empty-manifest"),
    ],
)
def test_the_whole_is_what_its_files_are(statuses: list[str | None], single: bool, expected: str) -> None:
    files = [FilesetManifestFile(str(n), status=status) for n, status in enumerate(statuses)]
    assert overall(files, single=single).value == expected


# -- requests, results, statuses, ids -----------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    ["", "no json", "[]", "1", "{}", '{"base_url": 7}', '{"base_url": ""}', '{"base_url": "x", "ingest_type": []}'],
)
def test_a_line_that_is_no_request_says_why(line: str) -> None:
    with pytest.raises(BadRequest):
        json_lines.request_of(line)


def test_requests_of_the_usual_shape_are_taken_as_they_are() -> None:
    line = {
        "base_url": "https://doi.org/10.5281/zenodo.7", "ingest_type": "dataset", "link_source": "doi",
        "ext_ids": {"doi": "10.5281/zenodo.7"}, "fatcat": {"release_ident": "aaa"}, "ingest_request_source": "x",
    }  # fmt: skip
    found = json_lines.request_of(json.dumps(line))
    assert (found.base_url, found.ingest_type, found.given) == (line["base_url"], "dataset", line)


def test_every_field_of_a_result_is_there_and_in_the_schema() -> None:
    whole = json.loads(b"".join(json_lines.encode(json_lines.IngestResult(hit=False, status="platform-404"))))
    asked = "hit status request terminal file_meta cdx revisit_cdx html_biblio manifest platform_name platform_domain"
    asked += " platform_id platform_base_url ingest_strategy archiveorg_item_name file_count total_size fileset_bundle"
    asked += " fileset_file ingest_strategy_preferred fileset"
    assert set(asked.split()) <= set(whole)
    schema = json_lines.schema()
    assert set(schema["$defs"]["IngestResult"]["properties"]) == set(whole)
    assert set(schema["$defs"]["FilesetFile"]["properties"]) == {"file_meta", "terminal", "cdx", "revisit_cdx"}
    assert all(set(one["required"]) == set(one["properties"]) for one in schema["$defs"].values())
    result, file = (schema["$defs"][name]["properties"] for name in ("IngestResult", "FilesetManifestFile"))
    statuses = [status.value for status in Status]
    assert (result["status"]["enum"], file["status"]["enum"]) == (statuses, [*statuses, None])
    assert result["ingest_strategy"]["enum"] == [*(one.value for one in IngestStrategy), None]


def test_the_schema_in_the_docs_is_the_one() -> None:
    path = Path(__file__).parents[2] / "docs" / "fileset-result.schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == json_lines.schema()


def test_statuses_of_data_sets_that_are_held() -> None:
    assert [status.value for status in Status if status.is_hit] == ["success", "success-file", "success-existing"]


def test_every_status_is_in_the_docs_with_what_to_do() -> None:
    text = (Path(__file__).parents[2] / "docs" / "fileset.md").read_text(encoding="utf-8")
    text = text.partition("## Statuses")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)`(?: \*)? \| .+ \| .+ \|$", text, re.M)
    assert rows == [status.value for status in Status]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.5281/zenodo.7", "10.5281/zenodo.7"),
        ("doi:10.5281/zenodo.7", "10.5281/zenodo.7"),
        ("https://doi.org/10.5281/zenodo.7", "10.5281/zenodo.7"),
        ("http://dx.doi.org/10.7910/DVN%2FABC", "10.7910/DVN/ABC"),
        ("https://doi.org/10.5281%2Fzenodo.7?x=1#y", "10.5281/zenodo.7"),
        ("https://doi.org/doi:10.1000.10/A%3Fb", "10.1000.10/A?b"),
        ("info:doi/10.5281/zenodo.7", "10.5281/zenodo.7"),
        ("urn:doi:10.5281/zenodo.7", "10.5281/zenodo.7"),
        ("doi.org/10.5281/zenodo.7?x=1", "10.5281/zenodo.7"),
        ("hdl.handle.net/10419/7#x", "10419/7"),
        ("doi:10.1002/(SICI)1096-8644(199601)99:1?3::AID#x", "10.1002/(SICI)1096-8644(199601)99:1?3::AID#x"),
        ("hdl:1902.1/21929", "1902.1/21929"),
        ("1902.1/21929", "1902.1/21929"),
        ("archive/7", None),
        ("https://hdl.handle.net/10419/7", "10419/7"),
        ("https://zenodo.org/records/7", None),
        ("http://127.0.0.1:99/10.5281/zenodo.7?x", "10.5281/zenodo.7"),
        ("http://127.0.0.1:99/10419/7", "10419/7"),
        ("http://127.0.0.1:99/doi:10.5281/zenodo.7", "10.5281/zenodo.7"),
        ("http://127.0.0.1:99/hdl:20.500/1?x", "20.500/1"),
        ("http://127.0.0.1:99/info:doi/10.5281/zenodo.7", "10.5281/zenodo.7"),
    ],
)
def test_dois_and_handles_are_found_in_every_spelling(text: str, found: str | None) -> None:
    assert identifier_of(text, "http://127.0.0.1:99/") == found


def test_ids_of_filesets_come_back_and_lead_to_urls() -> None:
    one = FilesetId("dataverse", "h:80", "doi:10.7910/DVN/A@B", "2.0")
    assert str(one) == "fileset:dataverse:h%3A80:doi:10.7910/DVN/A%40B@2.0"
    assert parse_fileset(str(one)) == one
    helpers = Registry({}).helpers
    assert url_of(str(one), helpers) == "https://h:80/dataset.xhtml?persistentId=doi:10.7910/DVN/A%40B&version=2.0"
    assert url_of("fileset:zenodo:zenodo.org:6", helpers) == "https://zenodo.org/records/6"
    assert url_of(str(FilesetId("generic", "127.0.0.1:9", "a?b=1")), helpers) == "http://127.0.0.1:9/a?b=1"
    for unknown in ("fileset:dspace:h:10419/7", "fileset:x:h:7", "fileset:x"):
        with pytest.raises(BadRequest):
            url_of(unknown, helpers)
    for bad in ("fileset:", "fileset:a:b", "fileset:a:b:", "x:a:b:c", "fileset:a:b:c@"):
        with pytest.raises(BadName):
            parse_fileset(bad)


@given(st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9), st.text(max_size=9))
def test_any_id_comes_back(domain: str, work: str, version: str) -> None:
    one = FilesetId("generic", domain.lower(), work, version)
    assert parse_fileset(str(one)) == one._replace(domain=domain.lower().lower())
