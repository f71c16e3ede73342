"""Mendeley Data: versions of data sets. Files have only the ids of their directories, whose names are asked for; a data
set without a list of files has one for each directory."""

from __future__ import annotations

import re
from collections.abc import Mapping

from archec.fileset.checksums import checksums
from archec.fileset.fields import JsonValue, first_of
from archec.fileset.model import FilesetManifestFile, IngestRequest, Resource
from archec.fileset.platforms.base import (
    MOST_FILES,
    FilesetPlatformHelper,
    Question,
    Questions,
    check_own,
    download_url,
    manifest_file,
    path_of,
    query_of,
    quoted,
)
from archec.fileset.status import FilesetPlatformScopeError, PlatformError

_DEEPEST = 100
_MOST_FOLDERS = 5000
_VERSION = re.compile("[0-9]{1,9}")
_NAMED = re.compile(r"/datasets/([a-z0-9]+)/")


class MendeleyHelper(FilesetPlatformHelper):
    """data.mendeley.com."""

    name = "mendeley"
    hosts = ("data.mendeley.com",)
    api = "/public-api"
    pages = ("/datasets/{work}", "/datasets/{work}/{version}")
    pattern = re.compile(r"/datasets/([a-z0-9]+)(?:/(?P<version>[0-9]{1,9})(?:/files/.*)?)?/?$")

    def version_in(self, url: str) -> str:
        """The version in the path; in the query of a URL of the API."""
        version = super().version_in(url) or query_of(url).get("version", "")
        return version if _VERSION.fullmatch(version) else ""

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for the data set, and for the names of its directories if it has any."""
        url = self.url_of(request, resource)
        asked, version, base = self.named_in(url)[1], self.version_in(url), self.base(url)
        answer = yield Question(f"{base}/datasets/{asked}" + (f"?version={version}" if version else ""))
        data = answer.json()
        known, number = data["id"].word(), data["version"].whole_or_none()
        if known != asked or (version and number is not None and int(version) != number):
            message = f"{asked} {version} was asked for, and the answer is of {known} {number}"
            raise FilesetPlatformScopeError(message, members=[f"{known}/{number}"])
        current, folders = number or version or 1, dict[str, tuple[str, str]]()
        has_list = not data["files"].is_null
        rows = [(row, row["folder_id"].word_or_none() or "") for row in data["files"].items()]
        if any(folder for _, folder in rows) or not has_list:
            answer = yield Question(f"{base}/datasets/{known}/folders/{current}")
            if answer.status == 200:
                folders = {
                    one["id"].word(): (one["name"].text(), one["parent_id"].word_or_none() or "")
                    for one in answer.json().items()
                }
        for folder in () if has_list else ("root", *folders):
            if len(folders) > _MOST_FOLDERS or len(rows) > MOST_FILES:
                raise PlatformError(f"{base}/datasets/{known}: has too many directories or files")
            answer = yield Question(f"{base}/datasets/{known}/files?folder_id={quoted(folder)}&version={current}")
            if answer.status != 404:
                rows += ((row, folder) for row in answer.json().items())
        return self.item(
            url, known, [_file(row, folder, folders, known, base) for row, folder in rows],
            title=data["name"].text_or_none(), order=[number],
            meta={"doi": data["doi"]["id"].text_or_none()},
            page=f"https://{self.domain(url)}/datasets/{known}/{current}", published=data["publish_date"].tist(),
            work_doi=re.sub(r"\.[0-9]+$", "", data["doi"]["id"].text_or_none() or ""),
        )  # fmt: skip


def _file(
    row: JsonValue, folder: str, folders: Mapping[str, tuple[str, str]], known: str, base: str
) -> FilesetManifestFile:
    details = row["content_details"]
    sums = checksums(details["sha256_hash"].text_or_none(), kind="sha256")
    path = [row["filename"].text()]
    while folder and folder != "root" and len(path) < _DEEPEST:
        name, parent = folders.get(folder, (folder, ""))
        path.insert(0, name)
        folder = parent
    url = download_url(details["download_url"], base)
    check_own(details["download_url"], url, _NAMED.search(path_of(url)), known, "data set")
    extra = {"file_id": row["id"].word_or_none()}
    return manifest_file(
        "/".join(path), first_of(details["size"], row["size"]).whole_or_none(), sums, url,
        details["content_type"].text_or_none(), extra,
    )  # fmt: skip
