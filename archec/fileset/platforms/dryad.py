"""Dryad: the newest version of a data set, with its files in pages of a hundred."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin

from archec.fileset.checksums import checksums
from archec.fileset.fields import JsonValue, first_of
from archec.fileset.model import FilesetManifestFile, IngestRequest, Resource
from archec.fileset.platforms.base import (
    FilesetPlatformHelper,
    Question,
    Questions,
    check_known,
    download_url,
    embargoed,
    license_of,
    manifest_file,
    paged_files,
    quoted,
    same_origin,
)
from archec.fileset.status import PlatformGone, PlatformNotFound, PlatformRestrictedError, Status


class DryadHelper(FilesetPlatformHelper):
    """datadryad.org."""

    name = "dryad"
    hosts = ("datadryad.org", "www.datadryad.org")
    api = "/api/v2"
    rate = "30/min"
    pages = ("/dataset/{work}", "/dataset/{work}")
    pattern = re.compile(r"doi:(10\.[0-9]+/[^?#]+?)(?:/(?:versions|download))?/?$", re.I)

    def id_in(self, url: str) -> str:
        """The DOI, with ``doi:``."""
        found = super().id_in(url)
        return f"doi:{found}" if found else ""

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for the data set, then for the files of its version."""
        url = self.url_of(request, resource)
        asked, base = f"doi:{self.named_in(url)[1]}", self.base(url)
        answer = yield Question(f"{base}/datasets/{quoted(asked)}")
        data = answer.json()
        known = data["identifier"].text()
        check_known(asked.lower(), known.lower())
        restricted = self.restricted(base, lambda: _check_open(data))
        link = data["_links"]["stash:version"]["href"]
        if link.is_null:
            raise PlatformNotFound("the data set has no published version")
        manifest = yield from paged_files(
            f"{same_origin(link, base + '/')}/files?per_page=100", base + "/",
            lambda body: body["_embedded"]["stash:files"], lambda rows: _files(rows, base),
            lambda body: body["_links"]["next"]["href"], lambda body: body["total"],
        )  # fmt: skip
        whole = data["_links"]["stash:download"]["href"]
        return self.item(
            url, known, manifest, title=data["title"].text_or_none(), meta={"license": license_of(data["license"])},
            order=[data["versionNumber"].whole_or_none()],
            bundle=None if whole.is_null else download_url(whole, base + "/"),
            page=urljoin(url, f"/dataset/{known}"), published=data["publicationDate"].tist(), restricted=restricted,
        )  # fmt: skip


def _check_open(data: JsonValue) -> None:
    """Raises the FilesetProblem of a data set that was withdrawn, or is not public."""
    state = data["curationStatus"].text_or_none()
    if state in ("Withdrawn", "Retracted"):
        raise PlatformGone(f"the data set was {state.lower()}")
    if (data["visibility"].text_or_none() or "public") != "public":
        raise PlatformRestrictedError("the data set is not public")
    if state == "Embargoed":
        raise embargoed("the files are embargoed", data["publicationDate"].text_or_none())


def _files(rows: JsonValue, base: str) -> Iterator[FilesetManifestFile]:
    return (_file(row, base) for row in rows.items() if row["status"].text_or_none() != "deleted")


def _file(row: JsonValue, base: str) -> FilesetManifestFile:
    link = first_of(row["_links"]["stash:download"], row["_links"]["stash:file-download"])
    sums = checksums(row["digest"].text_or_none(), kind=row["digestType"].text_or_none())
    url = None if link.is_null else download_url(link["href"], base + "/")
    path, size = row["path"].text(), row["size"].whole_or_none()
    status = Status.PLATFORM_RESTRICTED.value if link.is_null else None
    return manifest_file(path, size, sums, url, row["mimeType"].text_or_none(), status=status)
