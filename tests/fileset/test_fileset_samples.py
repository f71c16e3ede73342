"""Samples of real answers, played on loopback: addresses, sizes and checksums are swapped in, all else is verbatim."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from fileset_platform import Platform, bytes_of
from fileset_samples import SAMPLES, sample
from fileset_support import Filesets, make_archive

from archec.fileset.lookup import changes_of

_SIZES = ("size", "filesize", "originalFileSize")
_SUMS = {"md5": "md5", "computed_md5": "md5", "supplied_md5": "md5", "sha256_hash": "sha256", "sha256": "sha256",
         "sha1": "sha1"}  # fmt: skip


def swapped(platform: Platform, body: Any) -> Any:
    """A body with the platform's own address in place of every other one."""
    text = re.sub(r"https?://(?:[a-z0-9.-]*\.)?(?:zenodo\.org|figshare\.com|osf\.io|mendeley\.com)", platform.url,
                  json.dumps(body))  # fmt: skip
    return json.loads(text)


def played_file(platform: Platform, row: dict[str, Any], url: str, version: int) -> bytes:
    """Bytes of our own for a row: served at its URL, and their size and checksums in the row."""
    size = 1000 + version
    data = platform.files[urlsplit(url).path] = bytes_of(f"{url} {version}", size)
    for name, value in list(row.items()):
        if name in _SIZES and value is not None:
            row[name] = type(value)(size)
        elif name in _SUMS and value:
            row[name] = hashlib.new(_SUMS[name], data).hexdigest()
    if isinstance(row.get("checksum"), str):
        prefix = "md5:" if row["checksum"].startswith("md5:") else ""
        row["checksum"] = prefix + hashlib.md5(data).hexdigest()
    elif isinstance(row.get("checksum"), dict):
        row["checksum"]["value"] = hashlib.md5(data).hexdigest()
    if isinstance(row.get("digest"), str):
        row["digest"] = hashlib.md5(data).hexdigest()
    return data


def zenodo_sample(platform: Platform, name: str, version: int) -> tuple[str, int]:
    body = swapped(platform, sample(f"zenodo/{name}.json"))
    record = body["hits"]["hits"][0] if "hits" in body else body
    if version:
        asked = f"{record['id']}{version}"
        text = re.sub(rf"(records/){record['id']}\b", rf"\g<1>{asked}", json.dumps(body))
        body = json.loads(text)
        record = body["hits"]["hits"][0] if "hits" in body else body
        record["id"] = type(record["id"])(asked)
        for relation in record["metadata"].get("relations", {}).get("version", []):
            relation["index"] += version
    for row in record["files"]:
        links = row["links"]
        played_file(platform, row, links.get("content") or links.get("download") or links["self"], version)
    platform.bodies[f"/api/records/{record['id']}"] = body
    return f"{platform.url}/records/{record['id']}", len(record["files"])


def figshare_sample(platform: Platform, name: str, version: int) -> tuple[str, int]:
    body = swapped(platform, sample(f"figshare/{name}.json"))
    body["version"] = body.get("version", 1) + version
    for row in body["files"]:
        played_file(platform, row, row["download_url"], version)
    platform.bodies[f"/v2/articles/{body['id']}"] = body
    return f"{platform.url}/articles/dataset/x/{body['id']}", len(body["files"])


def dataverse_sample(platform: Platform, name: str, number: int) -> tuple[str, int]:
    body = copy.deepcopy(sample(f"dataverse/{name}.json"))
    version = body["data"]["latestVersion"]
    version["versionNumber"] += number
    for row in version["files"]:
        data = row["dataFile"]
        played_file(platform, data, f"{platform.url}/api/access/datafile/{data['id']}", number)
    platform.bodies["/api/datasets/:persistentId/"] = body
    return f"{platform.url}/dataset.xhtml?persistentId={version['datasetPersistentId']}", len(version["files"])


def mendeley_sample(platform: Platform, name: str, version: int) -> tuple[str, int]:
    body = swapped(platform, sample(f"mendeley/{name}.json"))
    body["version"] += version
    for row in body["files"]:
        played_file(platform, row["content_details"], row["content_details"]["download_url"], version)
    platform.bodies[f"/public-api/datasets/{body['id']}"] = body
    return f"{platform.url}/datasets/{body['id']}/{body['version']}", len(body["files"])


def dryad_sample(platform: Platform, name: str, version: int) -> tuple[str, int]:
    dataset, row = copy.deepcopy(sample(f"dryad/{name}.json")).values()
    return _dryad(platform, dataset, [row], version)


def dryad_document(platform: Platform, name: str, version: int) -> tuple[str, int]:
    dataset = copy.deepcopy(sample(f"dryad/{name}.json"))
    if "_embedded" in dataset:
        dataset = dataset["_embedded"]["stash:datasets"][0]
    rows = copy.deepcopy(sample("dryad/doc-example-files.json"))["_embedded"]["stash:files"]
    return _dryad(platform, dataset, rows, version)


def _dryad(platform: Platform, dataset: Any, rows: list[Any], version: int) -> tuple[str, int]:
    dataset["versionNumber"] = dataset.get("versionNumber", 1) + version
    for row in rows:
        played_file(platform, row, platform.url + row["_links"]["stash:download"]["href"], version)
    platform.bodies[dataset["_links"]["self"]["href"]] = dataset
    platform.bodies[f"/api/v2/datasets/{quote(dataset['identifier'], safe='')}"] = dataset
    files = f"{dataset['_links']['stash:version']['href']}/files"
    platform.bodies[files] = {"_embedded": {"stash:files": rows}, "_links": {}}
    return f"{platform.url}/dataset/{dataset['identifier']}", len(rows)


def osf_sample(platform: Platform, name: str, version: int) -> tuple[str, int]:
    """The root and the first page of one of its folders; the other pages and folders are empty."""
    node = swapped(platform, sample(f"osf/{name}.json"))
    root = swapped(platform, sample("osf/files-root-y8t6r.json"))
    folder = swapped(platform, sample("osf/folder-5d4ef210-page1of4.json"))
    files, count = "/v2/nodes/y8t6r/files/osfstorage/", 0
    nothing: dict[str, Any] = {"data": [], "links": {"next": None}}
    for row in (*root["data"], *folder["data"]):
        attributes = row["attributes"]
        if attributes["kind"] == "folder":
            platform.bodies[urlsplit(row["relationships"]["files"]["links"]["related"]["href"]).path] = nothing
            continue
        count += 1
        data = played_file(platform, attributes, row["links"]["download"], version)
        attributes["extra"]["hashes"] = {kind: hashlib.new(kind, data).hexdigest() for kind in ("md5", "sha256")}
        attributes["current_version"] += version
    platform.bodies["/v2/nodes/y8t6r/"], platform.bodies["/v2/nodes/y8t6r/children/"] = node, nothing
    platform.bodies[files] = root
    platform.bodies[f"{files}5d4ef2104e90e100146f7e53/"] = folder
    platform.bodies[f"{files}5d4ef2104e90e100146f7e53/?page=2"] = nothing
    return f"{platform.url}/y8t6r/", count


def archiveorg_sample(platform: Platform, name: str, version: int) -> tuple[str, int]:
    """The sample is a collection; here it is an item with its files."""
    body = copy.deepcopy(sample(f"archiveorg/{name}.json"))
    del body["is_collection"]
    body["metadata"]["mediatype"] = "image"
    own = [row for row in body["files"] if row["source"] == "original"]
    for row in own:
        played_file(platform, row, f"{platform.url}/download/nasa/{row['name']}", version)
        row["size"] = str(1000 + version)
    platform.bodies["/metadata/nasa"] = body
    return f"{platform.url}/details/nasa", len(own)


Play = Callable[[Platform, str, int], tuple[str, int]]
"""Puts a version of a sample on a platform, 0 or greater; gives its URL and the number of its files."""
CASES: dict[str, tuple[str, Play]] = {
    "record-3904280-current-2026-single-2GB": ("zenodo", zenodo_sample),
    "search-7085903-transitional-2023-10-multifile": ("zenodo", zenodo_sample),
    "record-7078760-legacy-2022": ("zenodo", zenodo_sample),
    "record-3459420-legacy-2019-12files": ("zenodo", zenodo_sample),
    "article-22306426-trimmed-2026": ("figshare", figshare_sample),
    "dataset-RLMYMR-2022-2files-tabular": ("dataverse", dataverse_sample),
    "dataset-5WTSUZ-2022-11files-directoryLabel": ("dataverse", dataverse_sample),
    "dataset-27221-2026-single-zip-trimmed": ("dataverse", dataverse_sample),
    "dataset-bjy2svvmn8-excerpt-3-of-3900-files": ("mendeley", mendeley_sample),
    "dataset-and-files-50kt0-trimmed-2026": ("dryad", dryad_sample),
    "doc-example-dataset": ("dryad", dryad_document),
    "datasets-list-2020-first3": ("dryad", dryad_document),
    "node-y8t6r": ("osf", osf_sample),
    "metadata-nasa": ("archiveorg", archiveorg_sample),
}


@pytest.fixture
def playing_all(folder: Path, platform: Platform) -> Callable[[str], Filesets]:
    def make(name: str) -> Filesets:
        own = {name: {"hosts": [platform.host], "rate": "none"}}
        return make_archive(folder, platform, fileset={"platforms": own, "resolver": platform.url})

    return make


@pytest.mark.parametrize("name", CASES)
def test_each_sample_is_ingested_is_then_existing_and_has_a_new_version(
    name: str, platform: Platform, playing_all: Callable[[str], Filesets]
) -> None:
    kind, play = CASES[name]
    need_samples()
    filesets = playing_all(kind)
    url, count = play(platform, name, 0)
    result = filesets.ingest(url)[0]
    whole = "success-file" if count == 1 else "success"
    assert (result.status, result.file_count) == (whole, count), result.message
    assert result.platform_name == kind
    filesets.asked()
    again = filesets.ingest(url)[0]
    assert again.status == "success-existing"
    assert not [path for path in filesets.asked() if urlsplit(path).path in platform.files]
    before = [file.sha256 for file in result.manifest or ()]
    url, _ = play(platform, name, 1)
    newer = filesets.ingest(url)[0]
    assert (newer.status, newer.file_count) == (whole, count), newer.message
    assert not set(before) & {file.sha256 for file in newer.manifest or ()}
    with filesets.archive() as archive:
        (obi,) = archive.catalogue.all("fileset")
        assert [change.what for change in changes_of(archive, obi)] == ["added"] * count + ["changed"] * count
        assert archive.catalogue.holding([sha256 or "" for sha256 in before]).keys() == set(before)


def need_samples() -> None:
    if not SAMPLES.exists():
        pytest.skip("no samples of platforms: ARCHEC_TEST_PLATFORM_SAMPLES names their folder")


def test_a_sample_that_is_a_collection_is_no_data_set(
    platform: Platform, playing_all: Callable[[str], Filesets]
) -> None:
    platform.bodies["/metadata/nasa"] = sample("archiveorg/metadata-nasa.json")
    result = playing_all("archiveorg").ingest(f"{platform.url}/details/nasa")[0]
    assert (result.status, result.hit) == ("platform-scope", False)


def test_the_sample_of_openicpsr_with_and_without_a_session(
    folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_samples()
    page = (SAMPLES / "openicpsr/project-132081-V1-landing-2022.html").read_bytes()
    platform.bodies["/openicpsr/project/132081/version/V1/view"] = page
    url = f"{platform.url}/openicpsr/project/132081/version/V1/view"
    own = {"openicpsr": {"hosts": [platform.host], "rate": "none", "token": "TEST_COOKIE"}}
    filesets = make_archive(folder, platform, fileset={"platforms": own, "resolver": platform.url})
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w") as made:
        made.writestr("132081-V1/README.pdf", b"%PDF-1.4")
        made.writestr("132081-V1/code/run.do", b"use data")
    platform.files["/openicpsr/project/132081/version/V1/download/project"] = b"<!DOCTYPE html><p>Log in"
    result = filesets.ingest(url)[0]
    assert (result.status, (result.html_biblio or {})["doi"]) == ("platform-restricted", "10.3886/E132081V1")
    monkeypatch.setenv("TEST_COOKIE", "session=1")
    platform.files["/openicpsr/project/132081/version/V1/download/project"] = bundle.getvalue()
    result = filesets.ingest(url)[0]
    assert (result.status, result.ingest_strategy, result.file_count) == ("success", "web-fileset-bundled", 2)
    assert filesets.ingest(url)[0].status == "success-existing"
    page = page.replace(b"132081V1", b"132081V2")
    platform.bodies["/openicpsr/project/132081/version/V2/view"] = page
    platform.files["/openicpsr/project/132081/version/V2/download/project"] = bundle.getvalue() + b"\0"
    newer = filesets.ingest(url.replace("V1", "V2"))[0]
    assert (newer.status, newer.platform_id) == ("success", "132081V2")
    tombstone = b"<html>This project has been withdrawn.</html>"
    platform.bodies["/openicpsr/project/132081/version/V2/view"] = tombstone
    gone = filesets.ingest(url.replace("V1", "V2"))[0]
    assert (gone.status, (gone.file_meta or {})["size_bytes"]) == ("platform-gone", len(tombstone))
    assert gone.fileset is not None
    with filesets.archive() as archive:
        assert archive.catalogue.obis("fileset", [gone.fileset])[gone.fileset].history.lost is not None
