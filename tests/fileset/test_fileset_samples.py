"""Samples of real answers, played on loopback: addresses, sizes and checksums are swapped in, all else is verbatim."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fileset_platform import Platform, bytes_of
from fileset_samples import SAMPLES, sample
from fileset_support import Filesets, make_archive

_SIZES = ("size", "filesize", "originalFileSize")
_SUMS = {"md5": "md5", "computed_md5": "md5", "supplied_md5": "md5", "sha256_hash": "sha256", "sha1": "sha1"}


def swapped(platform: Platform, body: Any) -> Any:
    """A body with the platform's own address in place of every other one."""
    text = re.sub(r"https?://(?:[a-z0-9.-]*\.)?(?:zenodo\.org|figshare\.com|osf\.io|mendeley\.com)", platform.url,
                  json.dumps(body))  # fmt: skip
    return json.loads(text)


def played_file(platform: Platform, row: dict[str, Any], url: str, size: int = 1000) -> bytes:
    """Bytes of our own for a row: served at its URL, and their size and checksums in the row."""
    data = platform.files[urlsplit(url).path] = bytes_of(url, size)
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


def zenodo_sample(platform: Platform, name: str) -> tuple[str, int]:
    body = swapped(platform, sample(f"zenodo/{name}.json"))
    record = body["hits"]["hits"][0] if "hits" in body else body
    for row in record["files"]:
        links = row["links"]
        played_file(platform, row, links.get("content") or links.get("download") or links["self"])
    platform.bodies[f"/api/records/{record['id']}"] = body
    return f"{platform.url}/records/{record['id']}", len(record["files"])


def figshare_sample(platform: Platform, name: str) -> tuple[str, int]:
    body = swapped(platform, sample(f"figshare/{name}.json"))
    for row in body["files"]:
        played_file(platform, row, row["download_url"])
    platform.bodies[f"/v2/articles/{body['id']}"] = body
    return f"{platform.url}/articles/dataset/x/{body['id']}", len(body["files"])


def dataverse_sample(platform: Platform, name: str) -> tuple[str, int]:
    body = copy.deepcopy(sample(f"dataverse/{name}.json"))
    version = body["data"]["latestVersion"]
    for row in version["files"]:
        data = row["dataFile"]
        played_file(platform, data, f"{platform.url}/api/access/datafile/{data['id']}")
    platform.bodies["/api/datasets/:persistentId/"] = body
    return f"{platform.url}/dataset.xhtml?persistentId={version['datasetPersistentId']}", len(version["files"])


def mendeley_sample(platform: Platform, name: str) -> tuple[str, int]:
    body = swapped(platform, sample(f"mendeley/{name}.json"))
    for row in body["files"]:
        played_file(platform, row["content_details"], row["content_details"]["download_url"])
    platform.bodies[f"/public-api/datasets/{body['id']}"] = body
    return f"{platform.url}/datasets/{body['id']}/{body['version']}", len(body["files"])


def dryad_sample(platform: Platform, name: str) -> tuple[str, int]:
    dataset, row = sample(f"dryad/{name}.json").values()
    row = copy.deepcopy(row)
    played_file(platform, row, platform.url + row["_links"]["stash:download"]["href"])
    platform.bodies[dataset["_links"]["self"]["href"]] = dataset
    files = f"{dataset['_links']['stash:version']['href']}/files"
    platform.bodies[files] = {"_embedded": {"stash:files": [row]}, "_links": {}}
    return f"{platform.url}/dataset/{dataset['identifier']}", 1


CASES: dict[str, tuple[str, Callable[[Platform, str], tuple[str, int]]]] = {
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
}


@pytest.fixture
def playing_all(folder: Path, platform: Platform) -> Callable[[str], Filesets]:
    def make(name: str) -> Filesets:
        own = {name: {"hosts": [platform.host], "rate": "none"}}
        return make_archive(folder, platform, fileset={"platforms": own, "resolver": platform.url})

    return make


@pytest.mark.parametrize("name", CASES)
def test_each_sample_is_ingested_and_then_existing(
    name: str, platform: Platform, playing_all: Callable[[str], Filesets]
) -> None:
    kind, play = CASES[name]
    if not SAMPLES.exists():
        pytest.skip("no samples of platforms: ARCHEC_TEST_PLATFORM_SAMPLES names their folder")
    filesets = playing_all(kind)
    url, count = play(platform, name)
    result = filesets.ingest(url)[0]
    assert (result.status, result.file_count) == ("success-file" if count == 1 else "success", count), result.message
    assert result.platform_name == kind
    filesets.asked()
    again = filesets.ingest(url)[0]
    assert again.status == "success-existing"
    assert not [path for path in filesets.asked() if urlsplit(path).path in platform.files]
