"""archive.org: items, with the files that were uploaded but not those that archive.org derived from them."""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import quote, urljoin

from archec.fileset.checksums import checksums
from archec.fileset.fields import JsonValue
from archec.fileset.model import FilesetManifestFile, IngestRequest, Resource
from archec.fileset.platforms.base import (
    FilesetPlatformHelper,
    Question,
    Questions,
    check_count,
    check_known,
    license_of,
    manifest_file,
    path_of,
    quoted,
)
from archec.fileset.status import (
    FilesetPlatformScopeError,
    FilesetProblem,
    PlatformNotFound,
    PlatformRestrictedError,
    Status,
)

_OWN = ("_meta.sqlite", "_archive.torrent", "_itemimage.jpg", "_meta.xml", "_thumb.png", "_files.xml", "_reviews.xml")
_OF_TORRENTS = ("_academictorrents.torrent", "_academictorrents_torrent.txt", ".bib")


class ArchiveOrgHelper(FilesetPlatformHelper):
    """archive.org."""

    name = "archiveorg"
    hosts = ("archive.org", "www.archive.org")
    pages = ("/details/{work}", "/details/{work}")
    pattern = re.compile(
        r"/(?:details|download|metadata|compress|embed|stream|serve)/([A-Za-z0-9][A-Za-z0-9_.-]*)(/.*)?$"
    )
    collections = re.compile(r"/details/(@[^/]+)")

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for the metadata of an item."""
        url = self.url_of(request, resource)
        if account := self.collections.search(path_of(url)):
            raise FilesetPlatformScopeError(f"{account[1]} is an account, not an item")
        found = self.named_in(url)
        asked = found[1]
        if (found[2] or "").strip("/"):
            raise FilesetPlatformScopeError(f"{found[2][:200]} is a part of an item", members=[asked])
        base = self.base(url).removesuffix("/metadata")
        answer = yield Question(f"{base}/metadata/{quoted(asked)}")
        body = answer.json()
        if body.is_object and not any(body.members()):
            raise PlatformNotFound(f"archive.org has no item {asked}")
        if body["is_dark"].flag():
            raise PlatformRestrictedError(f"the item {asked} is dark")
        if not body["error"].is_null:
            raise PlatformNotFound(f"archive.org has no item {asked}: {str(body['error'].raw)[:200]}")
        meta = body["metadata"]
        known = meta["identifier"].text()
        check_known(asked, known)
        kind = meta["mediatype"].text_or_none()
        if body["is_collection"].flag() or kind in ("collection", "web", "account"):
            members: list[str | None] = []
            with suppress(FilesetProblem):  # it is a collection, whatever the search says
                answer = yield Question(
                    f"{base}/advancedsearch.php?q=collection%3A{quoted(asked)}&fl%5B%5D=identifier&rows=21&output=json"
                )
                members = [one["identifier"].text_or_none() for one in answer.json()["response"]["docs"].items()]
            raise FilesetPlatformScopeError(f"{asked} is a {kind or 'collection'}, not an item", members=members)
        may_read = self.may_read(base)
        files = [_file(row, known, base, may_read=may_read) for row in body["files"].items()]
        check_count(body["files_count"], len(files))
        is_private = may_read and any(row["private"].flag() for row in body["files"].items())
        return self.item(
            url, known, [file for file in files if file is not None], name=known,
            title=meta["title"].first.text_or_none(), meta={"license": license_of(meta["licenseurl"])},
            page=urljoin(base, f"/details/{known}"), bundle=urljoin(base, f"/compress/{known}"),
            restricted=PlatformRestrictedError("some files are private") if is_private else None,
            published=meta["publicdate"].first.tist(),
        )  # fmt: skip


def _file(row: JsonValue, item: str, base: str, *, may_read: bool) -> FilesetManifestFile | None:
    """The row of an uploaded file; None for one that archive.org added."""
    name = row["name"].text()
    added = (*_OWN, *(_OF_TORRENTS if item.startswith("academictorrents_") else ()))
    is_own = name.startswith("__ia_") or name.lower() in {f"{item}{suffix}".lower() for suffix in added}
    if is_own or row["source"].text() != "original":
        return None
    status = Status.PLATFORM_RESTRICTED.value if row["private"].flag() and not may_read else None
    sums = checksums(*(f"{kind}:{value}" for kind in ("md5", "sha1") if (value := row[kind].text_or_none())))
    extra = {"format": row["format"].text_or_none()}
    url = f"{base}/download/{quoted(item)}/{quote(name)}"
    return manifest_file(name, row["size"].whole_or_none(), sums, url, None, extra, status)
