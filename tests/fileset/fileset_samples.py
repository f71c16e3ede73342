"""Answers of platforms: small ones made here, and, where they are at hand, samples of real ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from archec.fileset.model import FilesetPlatformItem, IngestRequest, Resource
from archec.fileset.platforms.base import FilesetPlatformHelper, PlatformAnswer, Question

SAMPLES = Path(os.environ.get("ARCHEC_TEST_PLATFORM_SAMPLES", "/nowhere"))
"""The folder of samples, one folder a platform."""

Answers = Callable[[Question], PlatformAnswer]


def sample(name: str) -> Any:
    """The JSON of a sample; skips where there are none."""
    path = SAMPLES / name
    if not path.exists():
        pytest.skip("no samples of platforms: ARCHEC_TEST_PLATFORM_SAMPLES names their folder")
    return json.loads(path.read_text(encoding="utf-8"))


def answering(bodies: Mapping[str, object]) -> Answers:
    """Answers by what the URL holds (the first that fits); 404 for anything else."""

    def ask(question: Question) -> PlatformAnswer:
        for part, body in bodies.items():
            if part in question.url:
                if isinstance(body, int):
                    return PlatformAnswer(question.url, body)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                return PlatformAnswer(question.url, 200, {}, data)
        return PlatformAnswer(question.url, 404, {}, b'{"status": 404, "message": "no such thing"}')

    return ask


def item_of(
    cls: type[FilesetPlatformHelper], url: str, bodies: Mapping[str, object], resource: Resource | None = None
) -> FilesetPlatformItem:
    """What a helper makes of a URL and of answers."""
    return cls(ask=answering(bodies)).process_request(IngestRequest(url), resource)


# -- made here: one answer of each platform, in the form that its documentation gives ------------------

ZENODO = {
    "id": 7, "conceptrecid": "6", "status": "published", "submitted": True, "created": "2026-01-02T03:04:05+00:00",
    "metadata": {"title": "Prices", "access_right": "open", "publication_date": "2026-01-02",
                 "creators": [{"name": "Doe, Jane"}], "relations": {"version": [{"index": 2}]}},
    "links": {"self_html": "https://zenodo.org/records/7", "archive": "https://zenodo.org/api/records/7/files-archive"},
    "files": [
        {"id": "a", "key": "data/p.csv", "size": 3, "checksum": "md5:900150983cd24fb0d6963f7d28e17f72",
         "links": {"self": "https://zenodo.org/api/records/7/files/data/p.csv/content"}},
        {"id": "b", "key": "readme.txt", "size": 0, "checksum": "md5:d41d8cd98f00b204e9800998ecf8427e",
         "links": {"self": "https://zenodo.org/api/records/7/files/readme.txt/content"}},
    ],
}  # fmt: skip

FIGSHARE = {
    "id": 123456, "version": 2, "is_public": True, "is_embargoed": False, "title": "Prices",
    "published_date": "2026-01-02T03:04:05Z", "url_public_html": "https://figshare.com/articles/dataset/p/123456/2",
    "files": [
        {"id": 1, "name": "p.csv", "size": 3, "is_link_only": False, "computed_md5": "",
         "supplied_md5": "900150983cd24fb0d6963f7d28e17f72", "download_url": "https://ndownloader.figshare.com/files/1"},
        {"id": 2, "name": "p.csv", "size": 4, "is_link_only": False, "computed_md5": "",
         "supplied_md5": "", "download_url": "https://ndownloader.figshare.com/files/2"},
        {"id": 3, "name": "elsewhere", "is_link_only": True, "download_url": "https://example.org/elsewhere"},
    ],
}  # fmt: skip

DATAVERSE = {
    "status": "OK",
    "data": {
        "protocol": "doi", "authority": "10.7910", "identifier": "DVN/ABCDEF", "publicationDate": "2026-01-02",
        "latestVersion": {
            "datasetPersistentId": "doi:10.7910/DVN/ABCDEF", "versionNumber": 2, "versionMinorNumber": 1,
            "versionState": "RELEASED", "releaseTime": "2026-01-02T03:04:05Z",
            "metadataBlocks": {"citation": {"fields": [{"typeName": "title", "value": "Prices"}]}},
            "files": [
                {"label": "p.tab", "directoryLabel": "data", "restricted": False, "dataFile": {
                    "id": 11, "persistentId": "", "filename": "p.tab", "filesize": 20, "originalFileName": "p.xlsx",
                    "originalFileSize": 3, "originalFileFormat": "application/vnd.ms-excel", "tabularData": True,
                    "contentType": "text/tab-separated-values", "md5": "0" * 32,
                    "checksum": {"type": "MD5", "value": "0" * 32}}},
                {"label": "r.txt", "restricted": True, "dataFile": {
                    "id": 12, "filename": "r.txt", "filesize": 3, "contentType": "text/plain",
                    "checksum": {"type": "SHA-1", "value": "a9993e364706816aba3e25717850c26c9cd0d89d"}}},
                {"label": "e.txt", "restricted": False, "dataFile": {
                    "id": 13, "filename": "e.txt", "filesize": 3, "contentType": "text/plain",
                    "embargo": {"dateAvailable": "2999-01-01"},
                    "checksum": {"type": "SHA-512", "value": "0" * 128}}},
            ],
        },
    },
}  # fmt: skip

ARCHIVEORG = {
    "created": 1, "metadata": {"identifier": "prices", "mediatype": "data", "title": "Prices"},
    "files": [
        {"name": "data/p.csv", "source": "original", "size": "3", "md5": "900150983cd24fb0d6963f7d28e17f72",
         "sha1": "a9993e364706816aba3e25717850c26c9cd0d89d", "format": "Comma-Separated Values"},
        {"name": "p.json", "source": "derivative", "size": "3"},
        {"name": "prices_meta.xml", "source": "original", "format": "Metadata"},
        {"name": "prices_files.xml", "source": "original", "format": "Metadata"},
    ],
}  # fmt: skip

OSF_NODE = {"data": {"id": "y8t6r", "attributes": {"title": "Prices", "public": True}, "relationships": {
    "children": {"links": {"related": {"href": "https://api.osf.io/v2/nodes/y8t6r/children/"}}}}}}  # fmt: skip
OSF_FOLDER = {
    "data": [{"attributes": {"kind": "folder", "name": "d"}, "relationships": {"files": {"links": {
        "related": {"href": "https://api.osf.io/v2/nodes/y8t6r/files/osfstorage/d1/"}}}}}],
    "links": {"next": None},
}  # fmt: skip
OSF_FILES = {
    "data": [{"id": "f1", "attributes": {
        "kind": "file", "name": "p.csv", "materialized_path": "/d/p.csv", "size": 3, "current_version": 1,
        "extra": {"hashes": {"md5": "900150983cd24fb0d6963f7d28e17f72", "sha256": None}}},
        "links": {"download": "https://osf.io/download/f1/"}}],
    "links": {"next": None},
}  # fmt: skip
OSF: Mapping[str, object] = {
    "children": {"data": []}, "/d1/": OSF_FILES, "files/osfstorage": OSF_FOLDER, "nodes/y8t6r/": OSF_NODE,
}  # fmt: skip

DRYAD: Mapping[str, object] = {
    "/versions/9/files": {"_embedded": {"stash:files": [
        {"path": "p.csv", "size": 3, "mimeType": "text/csv", "status": "created", "digestType": "md5",
         "digest": "900150983cd24fb0d6963f7d28e17f72",
         "_links": {"stash:download": {"href": "/api/v2/files/5/download"}}}]}},
    "/datasets/": {"identifier": "doi:10.5061/dryad.abc", "versionNumber": 3, "visibility": "public", "title": "Prices",
                   "_links": {"stash:version": {"href": "/api/v2/versions/9"}}},
}  # fmt: skip

MENDELEY: Mapping[str, object] = {
    "/folders/": [{"id": "g", "name": "inner", "parent_id": "f"}, {"id": "f", "name": "outer"}],
    "/datasets/": {"id": "abc123", "version": 1, "name": "Prices", "doi": {"id": "10.17632/abc123.1"}, "files": [
        {"filename": "p.csv", "id": "1", "folder_id": "g", "content_details": {
            "sha256_hash": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "size": 3,
            "content_type": "text/csv", "download_url": "https://data.mendeley.com/public-files/1"}}]},
}  # fmt: skip

FOUR_TU: Mapping[str, object] = {"/v2/articles/": {
    "id": None, "uuid": "01234567-89ab-cdef-0123-456789abcdef", "version": 1, "is_embargoed": False, "title": "Prices",
    "files": [{"uuid": "f", "name": "p.csv", "size": 3, "is_link_only": False, "supplied_md5": None,
               "computed_md5": "900150983cd24fb0d6963f7d28e17f72", "download_url": "https://data.4tu.nl/file/f"}],
}}  # fmt: skip

B2SHARE: Mapping[str, object] = {"/records/": {
    "id": "0123456789abcdef0123456789abcdef", "metadata": {
        "titles": [{"title": "Prices"}], "open_access": True, "publication_state": "published"},
    "links": {"files": "https://b2share.eudat.eu/api/files/b"},
    "files": [{"bucket": "b", "key": "p q.csv", "size": 3, "checksum": "md5:900150983cd24fb0d6963f7d28e17f72"}],
}}  # fmt: skip

DSPACE7: Mapping[str, object] = {
    "/bitstreams": {"_embedded": {"bitstreams": [
        {"uuid": "u", "name": "p.csv", "sizeBytes": 3, "checkSum": {
            "checkSumAlgorithm": "MD5", "value": "900150983cd24fb0d6963f7d28e17f72"},
         "_links": {"content": {"href": "https://econ.example.org/server/api/core/bitstreams/u/content"}}}]}},
    "/bundles": {"_embedded": {"bundles": [
        {"name": "LICENSE"}, {"name": "ORIGINAL", "_links": {"bitstreams": {
            "href": "https://econ.example.org/server/api/core/bundles/b/bitstreams"}}}]}},
    "/core/items/": {"uuid": "01234567-89ab-cdef-0123-456789abcdef", "name": "Prices", "handle": "10419/7",
                     "type": "item"},
}  # fmt: skip

DSPACE6: Mapping[str, object] = {"/rest/handle/": {
    "uuid": "u", "name": "Prices", "handle": "10419/7", "type": "item", "bitstreams": [
    {"name": "p.csv", "sizeBytes": 3, "bundleName": "ORIGINAL", "mimeType": "text/csv", "checkSum": {
        "checkSumAlgorithm": "MD5", "value": "900150983cd24fb0d6963f7d28e17f72"},
     "retrieveLink": "/bitstreams/1/retrieve"},
    {"name": "p.txt", "bundleName": "TEXT", "retrieveLink": "/bitstreams/2/retrieve"}]}}  # fmt: skip

HAL: Mapping[str, object] = {"/search/": {"response": {"docs": [
    {"halId_s": "hal-01234567", "version_i": 2, "title_s": ["Prices"], "uri_s": "https://hal.science/hal-01234567",
     "files_s": ["https://hal.science/hal-01234567/file/p.csv"]}]}}}  # fmt: skip
