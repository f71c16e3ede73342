"""Dryad: the newest version of a data set and its files, a hundred a page."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from archec.fileset.checksums import checksums
from archec.fileset.fields import Field
from archec.fileset.model import FilesetManifestFile, FilesetPlatformItem, IngestRequest, Resource
from archec.fileset.platforms.base import (
    MOST_FILES,
    FilesetPlatformHelper,
    Question,
    Questions,
    download_url,
    item_name,
    manifest_file,
    quoted,
    same_origin,
)
from archec.fileset.status import (
    FilesetPlatformScopeError,
    PlatformError,
    PlatformNotFound,
    PlatformRestrictedError,
)


class DryadHelper(FilesetPlatformHelper):
    """datadryad.org."""

    name = "dryad"
    hosts = ("datadryad.org", "www.datadryad.org")
    api = "/api/v2"
    rate = "30/min"
    pattern = re.compile(r"doi:(10\.[0-9]+/[^?#]+?)/?$", re.I)

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """The data set, then the files of its version."""
        url = self.url_of(request, resource)
        found = self.named_in(url)
        asked, base = f"doi:{found[1]}", self.base(url)
        answer = yield Question(f"{base}/datasets/{quoted(asked)}")
        data = answer.json()
        known = data["identifier"].text()
        if known.lower() != asked.lower():
            raise FilesetPlatformScopeError(f"{asked} was asked for, and the answer is of {known}", members=[known])
        if (data["visibility"].text_or_none() or "public") != "public":
            raise PlatformRestrictedError("the data set is not public")
        link = data["_links"]["stash:version"]["href"]
        if link.is_null:
            raise PlatformNotFound("the data set has no published version")
        page: str | None = f"{same_origin(link, base + '/')}/files?per_page=100"
        manifest: list[FilesetManifestFile] = []
        seen: set[str] = set()
        while page is not None and page not in seen:
            seen.add(page)
            answer = yield Question(page)
            body = answer.json()
            rows = body["_embedded"]["stash:files"]
            manifest += [_file(row, base) for row in rows.items() if row["status"].text_or_none() != "deleted"]
            if len(manifest) > MOST_FILES:
                raise PlatformError(f"{rows.shown}: more than {MOST_FILES} files")
            following = body["_links"]["next"]["href"]
            page = None if following.is_null else same_origin(following, base + "/")
        number = data["versionNumber"].whole_or_none()
        domain, parts = self.domain(url), urlsplit(url)
        return FilesetPlatformItem(
            platform_name=self.name,
            platform_domain=domain,
            platform_id=known,
            manifest=manifest,
            archiveorg_item_name=item_name(domain, known.rpartition("/")[2], f"v{number}" if number else ""),
            archiveorg_item_meta={"title": data["title"].text_or_none()},
            web_base_url=f"{parts.scheme}://{parts.netloc}/dataset/{known}",
            work_id=known,
            version=str(number) if number is not None else "",
            order=(number,) if number is not None else (),
            published=data["publicationDate"].tist(),
            title=data["title"].text_or_none() or "",
        )


def _file(row: Field, base: str) -> FilesetManifestFile:
    links = row["_links"]
    names = ("stash:download", "stash:file-download")
    link = next((links[name]["href"] for name in names if not links[name].is_null), links[names[0]]["href"])
    digest, kind = row["digest"].text_or_none(), row["digestType"].text_or_none()
    sums = checksums(digest, kind=kind)
    extra: dict[str, object] = {}
    if digest and not any(sums):
        extra["platform_checksum"] = f"{kind}:{digest}"
    url = download_url(link, base + "/")
    path, size = row["path"].text(), row["size"].whole_or_none()
    return manifest_file(path, size, sums, url, row["mimeType"].text_or_none(), extra)
