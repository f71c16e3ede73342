"""OSF: the storage of a project or a registration, read directory by directory."""

from __future__ import annotations

import re
from collections.abc import Generator
from urllib.parse import urlsplit

from archec.fileset.checksums import checksums
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
    same_origin,
)
from archec.fileset.status import (
    FilesetPlatformScopeError,
    PlatformError,
    PlatformGone,
    PlatformNotFound,
    PlatformRestrictedError,
)

_NODE = re.compile(r"/(?:v2/(?:nodes|registrations)/)?([a-z0-9]{5,8})(?:_v[0-9]+)?(?:/.*)?$")
_NO_NODE = frozenset({"login", "register", "search", "explore", "support", "download", "meetings", "dashboard"})
_MOST_PAGES = 5000


class OsfHelper(FilesetPlatformHelper):
    """osf.io."""

    name = "osf"
    hosts = ("osf.io", "www.osf.io", "api.osf.io")
    api = "https://api.osf.io/v2"
    rate = "100/h"

    def matches(self, url: str) -> bool:
        """Projects and registrations, by the short word in their URLs."""
        found = _NODE.match(path_of(url))
        return found is not None and found[1] not in _NO_NODE

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """The node, whether it has components, then its directories, page by page."""
        url = self.url_of(request, resource)
        found = _NODE.match(path_of(url))
        if found is None:
            raise PlatformNotFound(f"{url[:300]}: is not a project")
        asked, base = found[1], self.base(url)
        kind = "nodes"
        answer = yield Question(f"{base}/nodes/{asked}/")
        if answer.status == 404:
            kind = "registrations"
            answer = yield Question(f"{base}/registrations/{asked}/")
        node = answer.json()["data"]
        known = node["id"].word()
        if known != asked:
            raise FilesetPlatformScopeError(f"{asked} was asked for, and the answer is of {known}", members=[known])
        attributes = node["attributes"]
        _check_open(attributes)
        children = node["relationships"]["children"]["links"]["related"]["href"]
        if not children.is_null:
            answer = yield Question(same_origin(children, base))
            members = [child["id"].word() for child in answer.json()["data"].items()]
            if members:
                raise FilesetPlatformScopeError(f"{known} is a tree of components", members=members)
        manifest = yield from _files(f"{base}/{kind}/{known}/files/osfstorage/?page[size]=100", base)
        domain = self.domain(url).removeprefix("api.")
        return FilesetPlatformItem(
            platform_name=self.name,
            platform_domain=domain,
            platform_id=known,
            manifest=manifest,
            archiveorg_item_name=item_name(domain, known),
            archiveorg_item_meta={"title": attributes["title"].text_or_none()},
            web_base_url=f"{urlsplit(url).scheme}://{urlsplit(url).netloc.removeprefix('api.')}/{known}/",
            work_id=known,
            published=attributes["date_registered"].tist() or attributes["date_created"].tist(),
            title=attributes["title"].text_or_none() or "",
        )


def _check_open(attributes: Field) -> None:
    if attributes["withdrawn"].flag():
        raise PlatformGone("the registration was withdrawn")
    until = attributes["embargo_end_date"]
    if attributes["embargoed"].flag() or (not attributes["public"].is_null and not attributes["public"].flag()):
        date = until.text_or_none()
        raise PlatformRestrictedError("not public" + (f" until {date}" if date else ""), due=until.tist())


def _files(url: str, base: str) -> Generator[Question, PlatformAnswer, list[FilesetManifestFile]]:
    """The files of a directory and of all directories in it."""
    manifest: list[FilesetManifestFile] = []
    asked: set[str] = set()
    waiting = [url]
    while waiting:
        page = waiting.pop()
        if page in asked:
            continue
        asked.add(page)
        if len(asked) > _MOST_PAGES or len(manifest) > MOST_FILES:
            raise PlatformError(f"data: more than {_MOST_PAGES} pages or {MOST_FILES} files")
        answer = yield Question(page)
        body = answer.json()
        following = body["links"]["next"]
        if not following.is_null:
            waiting.append(same_origin(following, base))
        if not body["data"].is_list:
            raise body["data"].error("a list")
        for row in body["data"].items():
            attributes = row["attributes"]
            if attributes["kind"].text() == "folder":
                waiting.append(same_origin(row["relationships"]["files"]["links"]["related"]["href"], base))
            else:
                manifest.append(_file(row, attributes, base))
    return sorted(manifest, key=lambda file: file.path)


def _file(row: Field, attributes: Field, base: str) -> FilesetManifestFile:
    path = (attributes["materialized_path"].text_or_none() or attributes["name"].text()).removeprefix("/")
    hashes = attributes["extra"]["hashes"]
    sums = checksums(*(f"{kind}:{value}" for kind in ("md5", "sha256") if (value := hashes[kind].text_or_none())))
    extra = {"file_id": row["id"].word_or_none(), "version": attributes["current_version"].whole_or_none()}
    url = download_url(row["links"]["download"], base)
    return manifest_file(path, attributes["size"].whole_or_none(), sums, url, None, extra)
