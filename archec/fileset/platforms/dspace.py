"""DSpace: version 7 and later (``/server/api``) and version 6 and earlier (``/rest``), on the configured hosts."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator

from archec.fileset.checksums import Checksums, checksums
from archec.fileset.fields import JsonValue
from archec.fileset.model import FilesetManifestFile, IngestRequest, Resource
from archec.fileset.platforms.base import (
    UUID,
    FileQuestions,
    FilesetPlatformHelper,
    PlatformAnswer,
    Question,
    Questions,
    check_known,
    download_url,
    identified,
    item_name,
    manifest_file,
    paged_files,
    path_of,
    quoted,
    same_origin,
)
from archec.fileset.status import FilesetPlatformScopeError, PlatformGone


class DspaceHelper(FilesetPlatformHelper):
    """DSpace on configured hosts."""

    name = "dspace"
    pattern = re.compile(rf"/(?:handle|bitstream)/([0-9.]+/[A-Za-z0-9._-]+)|/(?:items|entities/[A-Za-z]+)/({UUID})")
    collections = re.compile(rf"/(collections|communities)/({UUID})")

    def id_in(self, url: str) -> str:
        """The handle of the item; its UUID, if the URL has that."""
        found = super().id_in(url)
        return found if "/" in found else found.lower()

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks the API of version 7 for the item or collection; if it is not found there, that of version 6."""
        url = self.url_of(request, resource)
        base, asked, rest = self.base(url), self.id_in(url), ""
        server = base if base.endswith("/api") else f"{base.removesuffix('/rest')}/server/api"
        if not asked and (found := self.collections.search(path_of(url))):
            kind, asked = found[1], found[2].lower()
        else:
            kind = "handle" if "/" in asked else "items"
        answer = yield Question(
            f"{server}/pid/find?id={quoted(asked)}" if kind == "handle" else f"{server}/core/{kind}/{asked}"
        )
        if answer.status == 404:
            rest = base if base.endswith("/rest") else f"{base.removesuffix('/server/api')}/rest"
            answer = yield Question(f"{rest}/{kind}/{asked}?expand=bitstreams,metadata")
        body = answer.json()
        known, stated = body["uuid"].word_or_none() or body["id"].word(), body["handle"].text_or_none()
        check_known(asked, known if kind != "handle" else stated or asked)
        if (body["type"].text_or_none() or "item") != "item":
            yield from _collection(body, asked, known, server, f"{rest}/{kind}" if rest else "")
        own = stated or known
        with identified(own):
            if body["withdrawn"].flag():
                raise PlatformGone("the item was withdrawn")
        if rest:
            manifest = _old_files(body, rest)
        else:
            manifest = yield from _new_files(f"{server}/core/items/{quoted(known)}/bundles", server)
        return self.item(
            url, own, manifest, title=body["name"].text_or_none(), page=url, published=body["lastModified"].tist(),
            name=item_name(self.domain(url), own.replace("/", "_")),
        )  # fmt: skip


def _collection(
    body: JsonValue, asked: str, known: str, server: str, rest: str
) -> Generator[Question, PlatformAnswer, None]:
    """Raises FilesetPlatformScopeError with some members of a collection or community."""
    members: list[JsonValue] = []
    if rest:
        answer = yield Question(f"{rest}/{asked}?expand=items,collections,subCommunities")
        listed = answer.json()
        for name in ("items", "collections", "subcommunities"):
            members += listed[name].items()
    else:
        answer = yield Question(f"{server}/discover/search/objects?scope={quoted(known)}&dsoType=item&size=20")
        rows = answer.json()["_embedded"]["searchResult"]["_embedded"]["objects"]
        members += (row["_embedded"]["indexableObject"] for row in rows.items())
    ids = [one["handle"].word_or_none() or one["uuid"].word_or_none() for one in members]
    raise FilesetPlatformScopeError(f"{asked} is a {body['type'].text()[:40]}, not an item", members=ids)


def _old_files(body: JsonValue, rest: str) -> list[FilesetManifestFile]:
    if not body["bitstreams"].is_list:
        raise body["bitstreams"].error("a list")
    return [
        manifest_file(
            row["name"].text(), row["sizeBytes"].whole_or_none(), _sums(row), _old_link(row["retrieveLink"], rest),
            row["mimeType"].text_or_none(),
        )
        for row in body["bitstreams"].items()
        if (row["bundleName"].text_or_none() or "ORIGINAL") == "ORIGINAL"
    ]  # fmt: skip


def _old_link(link: JsonValue, rest: str) -> str:
    """The download URL of a file: a path below the API in version 5, below the host in version 6."""
    own = link.text().removeprefix("/rest")
    return f"{rest}{own}" if own.startswith("/bitstreams/") else download_url(link, rest)


def _new_files(url: str, base: str) -> FileQuestions:
    def files(rows: JsonValue) -> Iterator[FilesetManifestFile]:
        for row in rows.items():
            link = download_url(row["_links"]["content"]["href"], base)
            size, extra = row["sizeBytes"].whole_or_none(), {"file_id": row["uuid"].word_or_none()}
            yield manifest_file(row["name"].text(), size, _sums(row), link, None, extra)

    def bundles(rows: JsonValue) -> Iterable[FilesetManifestFile]:
        for bundle in rows.items():
            if bundle["name"].text_or_none() == "ORIGINAL":
                lists.append(same_origin(bundle["_links"]["bitstreams"]["href"], base))
        return ()

    lists: list[str] = []
    manifest = yield from paged_files(url, base, lambda body: body["_embedded"]["bundles"], bundles, _next, _total)
    for first in lists:
        manifest += yield from paged_files(
            first, base, lambda body: body["_embedded"]["bitstreams"], files, _next, _total
        )  # fmt: skip
    return manifest


def _next(body: JsonValue) -> JsonValue:
    return body["_links"]["next"]["href"]


def _total(body: JsonValue) -> JsonValue:
    return body["page"]["totalElements"]


def _sums(row: JsonValue) -> Checksums:
    checksum = row["checkSum"]
    return checksums(checksum["value"].text_or_none(), kind=checksum["checkSumAlgorithm"].text_or_none())
