"""Mendeley Data: versions of data sets. Files have only the ids of their directories, whose names are asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from archec.fileset.checksums import checksums
from archec.fileset.fields import JsonValue, first_of
from archec.fileset.model import FilesetManifestFile, IngestRequest, Resource
from archec.fileset.platforms.base import (
    FilesetPlatformHelper,
    Question,
    Questions,
    download_url,
    manifest_file,
    path_of,
    query_of,
)
from archec.fileset.status import FilesetPlatformScopeError, PlatformError

_DEEPEST = 100
_NAMED = re.compile(r"/datasets/([a-z0-9]+)/")


class MendeleyHelper(FilesetPlatformHelper):
    """data.mendeley.com."""

    name = "mendeley"
    hosts = ("data.mendeley.com",)
    api = "/public-api"
    pages = ("/datasets/{work}", "/datasets/{work}/{version}")
    pattern = re.compile(r"/datasets/([a-z0-9]+)(?:/(?P<version>[0-9]+)(?:/files/.*)?)?/?$")

    def version_in(self, url: str) -> str:
        """The version in the path; in the query of a URL of the API."""
        version = super().version_in(url) or query_of(url).get("version", "")
        return version if version.isdecimal() else ""

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
        folders: dict[str, tuple[str, str]] = {}
        if any(not row["folder_id"].is_null for row in data["files"].items()):
            answer = yield Question(f"{base}/datasets/{known}/folders/{number or version or 1}")
            if answer.status == 200:
                folders = {
                    one["id"].word(): (one["name"].text(), one["parent_id"].word_or_none() or "")
                    for one in answer.json().items()
                }
        return self.item(
            url, known, [_file(row, folders, known, base) for row in data["files"].items()],
            title=data["name"].text_or_none(), order=[number],
            meta={"doi": data["doi"]["id"].text_or_none()},
            page=f"https://{self.domain(url)}/datasets/{known}/{number or 1}", published=data["publish_date"].tist(),
            work_doi=re.sub(r"\.[0-9]+$", "", data["doi"]["id"].text_or_none() or ""),
        )  # fmt: skip


def _file(row: JsonValue, folders: Mapping[str, tuple[str, str]], known: str, base: str) -> FilesetManifestFile:
    details = row["content_details"]
    sums = checksums(details["sha256_hash"].text_or_none(), kind="sha256")
    path, folder = [row["filename"].text()], row["folder_id"].word_or_none() or ""
    while folder and folder != "root" and len(path) < _DEEPEST:
        name, parent = folders.get(folder, (folder, ""))
        path.insert(0, name)
        folder = parent
    url = download_url(details["download_url"], base)
    named = _NAMED.search(path_of(url))
    if named is not None and named[1] != known:
        raise PlatformError(f"{details['download_url'].shown}: {url[:200]!r} is of another data set than {known}")
    extra = {"file_id": row["id"].word_or_none()}
    return manifest_file(
        "/".join(path), first_of(details["size"], row["size"]).whole_or_none(), sums, url,
        details["content_type"].text_or_none(), extra,
    )  # fmt: skip
