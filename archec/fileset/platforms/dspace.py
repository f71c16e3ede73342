"""DSpace: version 7 and later (``/server/api``) and version 6 and earlier (``/rest``), on the configured hosts."""

from __future__ import annotations

import re
from collections.abc import Generator

from archec.fileset.checksums import Checksums, checksums
from archec.fileset.fields import Field
from archec.fileset.model import FilesetManifestFile, FilesetPlatformItem, IngestRequest, Resource
from archec.fileset.platforms.base import (
    MOST_FILES,
    FilesetPlatformHelper,
    PlatformAnswer,
    Question,
    Questions,
    download_url,
    item_name,
    manifest_file,
    path_of,
    quoted,
    same_origin,
)
from archec.fileset.status import FilesetPlatformScopeError, PlatformError, PlatformNotFound

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ITEM = re.compile(rf"/(?:items|entities/[a-z]+)/({_UUID})")
_HANDLE = re.compile(r"/handle/([0-9.]+/[A-Za-z0-9._-]+)")


class DspaceHelper(FilesetPlatformHelper):
    """Installations of DSpace, by their configured hosts."""

    name = "dspace"
    api = ""

    def matches(self, url: str) -> bool:
        """Items, by UUID or handle."""
        path = path_of(url)
        return _ITEM.search(path) is not None or _HANDLE.search(path) is not None

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """The item as version 7 tells of it; if there is no such API, as version 6 does."""
        url = self.url_of(request, resource)
        path, base = path_of(url), self.base(url)
        item, handle = _ITEM.search(path), _HANDLE.search(path)
        server = base if base.endswith("/api") else f"{base.removesuffix('/rest')}/server/api"
        if item is not None:
            answer = yield Question(f"{server}/core/items/{item[1]}")
        elif handle is not None:
            answer = yield Question(f"{server}/pid/find?id={quoted(handle[1])}")
        else:
            raise PlatformNotFound(f"{url[:300]}: is not an item")
        asked = item[1] if item is not None else handle[1] if handle is not None else ""
        if answer.status == 404 and handle is not None:
            rest = base if base.endswith("/rest") else f"{base.removesuffix('/server/api')}/rest"
            answer = yield Question(f"{rest}/handle/{handle[1]}?expand=bitstreams,metadata")
            body = answer.json()
            manifest = _old_files(body, rest)
            known = body["uuid"].word_or_none() or body["id"].word()
        else:
            body = answer.json()
            known = body["uuid"].word_or_none() or body["id"].word()
            if item is not None and known != asked:
                raise FilesetPlatformScopeError(f"{asked} was asked for, and the answer is of {known}", members=[known])
            if (body["type"].text_or_none() or "item") != "item":
                yield from _collection(body, asked, server)
            if body["withdrawn"].flag():
                raise PlatformNotFound("the item was withdrawn")
            manifest = yield from _new_files(f"{server}/core/items/{quoted(known)}/bundles", server)
        stated = body["handle"].text_or_none()
        if handle is not None and stated and stated != handle[1]:
            message = f"{handle[1]} was asked for, and the answer is of {stated}"
            raise FilesetPlatformScopeError(message, members=[stated])
        domain, title = self.domain(url), body["name"].text_or_none() or ""
        return FilesetPlatformItem(
            platform_name=self.name,
            platform_domain=domain,
            platform_id=stated or known,
            manifest=manifest,
            archiveorg_item_name=item_name(domain, (stated or known).replace("/", "_")),
            archiveorg_item_meta={"title": title},
            web_base_url=url,
            work_id=stated or known,
            title=title,
            published=body["lastModified"].tist(),
        )


def _collection(body: Field, asked: str, server: str) -> Generator[Question, PlatformAnswer, None]:
    """Names some of the items in what is none."""
    kind, known = body["type"].text()[:40], body["uuid"].word()
    answer = yield Question(f"{server}/discover/search/objects?scope={quoted(known)}&dsoType=item&size=20")
    rows = answer.json()["_embedded"]["searchResult"]["_embedded"]["objects"]
    items = [row["_embedded"]["indexableObject"] for row in rows.items()]
    members = [name for one in items if (name := one["handle"].word_or_none() or one["uuid"].word_or_none())]
    raise FilesetPlatformScopeError(f"{asked} is a {kind}, not an item", members=members)


def _old_files(body: Field, rest: str) -> list[FilesetManifestFile]:
    if (body["type"].text_or_none() or "item") != "item":
        raise FilesetPlatformScopeError(f"the handle is of a {body['type'].text()[:40]}, not of an item")
    if not body["bitstreams"].is_list:
        raise body["bitstreams"].error("a list")
    origin = rest.removesuffix("/rest")
    return [
        manifest_file(
            row["name"].text(), row["sizeBytes"].whole_or_none(), _sums(row),
            download_url(row["retrieveLink"], rest) if row["retrieveLink"].text().startswith("/rest/")
            else origin + "/rest" + row["retrieveLink"].text(),
            row["mimeType"].text_or_none(),
        )
        for row in body["bitstreams"].items()
        if (row["bundleName"].text_or_none() or "ORIGINAL") == "ORIGINAL"
    ]  # fmt: skip


def _new_files(url: str, base: str) -> Generator[Question, PlatformAnswer, list[FilesetManifestFile]]:
    answer = yield Question(url)
    manifest: list[FilesetManifestFile] = []
    for bundle in answer.json()["_embedded"]["bundles"].items():
        if bundle["name"].text_or_none() != "ORIGINAL":
            continue
        page: str | None = same_origin(bundle["_links"]["bitstreams"]["href"], base)
        seen: set[str] = set()
        while page is not None and page not in seen:
            seen.add(page)
            answer = yield Question(page)
            body = answer.json()
            rows = body["_embedded"]["bitstreams"]
            for row in rows.items():
                link = download_url(row["_links"]["content"]["href"], base)
                size, extra = row["sizeBytes"].whole_or_none(), {"file_id": row["uuid"].word_or_none()}
                manifest.append(manifest_file(row["name"].text(), size, _sums(row), link, None, extra))
            if len(manifest) > MOST_FILES:
                raise PlatformError(f"{rows.shown}: more than {MOST_FILES} files")
            following = body["_links"]["next"]["href"]
            page = None if following.is_null else same_origin(following, base)
    return manifest


def _sums(row: Field) -> Checksums:
    said = row["checkSum"]
    return checksums(said["value"].text_or_none(), kind=said["checkSumAlgorithm"].text_or_none())
