"""OSF: the files of a project or registration, which are listed directory by directory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin

from archec.fileset.checksums import checksums
from archec.fileset.fields import JsonValue
from archec.fileset.model import FilesetManifestFile, IngestRequest, Resource
from archec.fileset.platforms.base import (
    MOST_FILES,
    FileQuestions,
    FilesetPlatformHelper,
    Question,
    Questions,
    check_known,
    check_own,
    download_url,
    embargoed,
    manifest_file,
    paged_files,
    path_of,
    same_origin,
)
from archec.fileset.status import FilesetPlatformScopeError, PlatformError, PlatformGone

_NO_NODE = "login|register|search|explore|support|download|meetings|dashboard|project|prereg|profile|settings"
_MOST_FOLDERS = 5000
_RESOURCE = re.compile(r"/v1/resources/([a-z0-9]+)/providers/")


class OsfHelper(FilesetPlatformHelper):
    """osf.io."""

    name = "osf"
    hosts = ("osf.io", "www.osf.io", "api.osf.io")
    api = "https://api.osf.io/v2"
    rate = "100/h"
    pages = ("/{work}/", "/{work}/")
    pattern = re.compile(
        rf"\A/(?:v2/(?:nodes|registrations)/|project/)?(?!(?:{_NO_NODE})(?:[_/]|$))([a-z0-9]{{5,8}})(?:_v[0-9]+)?(?:/.*)?$",
        re.I,
    )

    def id_in(self, url: str) -> str:
        """The id of the node, which may be in upper case."""
        return super().id_in(url).lower()

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for the node, then for its components, then for its directories page by page."""
        url = self.url_of(request, resource)
        asked, base, kind = self.named_in(url)[1].lower(), self.base(url), "nodes"
        answer = yield Question(f"{base}/nodes/{asked}/")
        if answer.status == 404:
            kind = "registrations"
            answer = yield Question(f"{base}/registrations/{asked}/")
        if answer.status == 404:
            file = yield Question(f"{base}/files/{asked}/")
            if file.status == 200:
                owner = file.json()["data"]["relationships"]["target"]["data"]["id"]
                raise FilesetPlatformScopeError(f"{asked} is a file of a project", members=[owner.word_or_none()])
        node = answer.json()["data"]
        known = node["id"].word()
        check_known(asked, known)
        attributes = node["attributes"]
        restricted = self.restricted(base, lambda: _check_open(attributes))
        children = node["relationships"]["children"]["links"]["related"]["href"]
        if not children.is_null:
            answer = yield Question(same_origin(children, base))
            members = [child["id"].word() for child in answer.json()["data"].items()]
            if members:
                raise FilesetPlatformScopeError(f"{known} is a tree of components", members=members)
        manifest = yield from _files(f"{base}/{kind}/{known}/files/osfstorage/?page[size]=100", base, known)
        return self.item(
            url, known, manifest, title=attributes["title"].text_or_none(),
            page=urljoin(url.replace("://api.", "://", 1), f"/{known}/"),
            published=attributes["date_registered"].tist() or attributes["date_created"].tist(),
            restricted=restricted,
        )  # fmt: skip

    def domain(self, url: str) -> str:
        """The domain of the platform's pages, also for URLs of its API."""
        return super().domain(url).removeprefix("api.")


def _check_open(attributes: JsonValue) -> None:
    if attributes["withdrawn"].flag():
        raise PlatformGone("the registration was withdrawn")
    if attributes["embargoed"].flag() or (not attributes["public"].is_null and not attributes["public"].flag()):
        raise embargoed("not public", attributes["embargo_end_date"].text_or_none())


def _files(url: str, base: str, node: str) -> FileQuestions:
    """Asks for the files of a directory and of all directories below it. Returns them sorted by path."""
    manifest: list[FilesetManifestFile] = []
    folders = [url]

    def files(rows: JsonValue) -> Iterator[FilesetManifestFile]:
        if not rows.is_list:
            raise rows.error("a list")
        for row in rows.items():
            attributes = row["attributes"]
            if attributes["kind"].text() == "folder":
                folders.append(same_origin(row["relationships"]["files"]["links"]["related"]["href"], base))
            else:
                yield _file(row, attributes, base, node)

    for number, folder in enumerate(folders):
        if number >= _MOST_FOLDERS or len(manifest) > MOST_FILES or folder in folders[:number]:
            raise PlatformError(f"{folder[:300]}: the list of directories does not come to an end")
        manifest += yield from paged_files(
            folder, base, lambda body: body["data"], files, lambda body: body["links"]["next"],
            lambda body: body["links"]["meta"]["total"] if body["meta"]["total"].is_null else body["meta"]["total"],
        )  # fmt: skip
    return sorted(manifest, key=lambda file: file.path)


def _file(row: JsonValue, attributes: JsonValue, base: str, node: str) -> FilesetManifestFile:
    path = (attributes["materialized_path"].text_or_none() or attributes["name"].text()).removeprefix("/")
    hashes = attributes["extra"]["hashes"]
    sums = checksums(*(f"{kind}:{value}" for kind in ("md5", "sha256") if (value := hashes[kind].text_or_none())))
    extra = {"file_id": row["id"].word_or_none(), "version": attributes["current_version"].whole_or_none()}
    link = row["links"]["download"]
    url = download_url(link, base)
    check_own(link, url, _RESOURCE.search(path_of(url)), node, "project")
    return manifest_file(path, attributes["size"].whole_or_none(), sums, url, None, extra)
