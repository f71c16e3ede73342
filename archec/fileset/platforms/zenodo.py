"""Zenodo, B2SHARE and other installations of InvenioRDM: records, in all formats that Zenodo has used.

Until October 2023 a file had ``bucket`` and ``type``; for some weeks ``filename``, ``filesize`` and a checksum without
its kind; since then ``key``, ``size`` and ``links.self``. InvenioRDM's own format has ``files.entries``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from archec.fileset.checksums import checksums
from archec.fileset.fields import JsonValue, first_of
from archec.fileset.model import FilesetManifestFile, IngestRequest, Resource
from archec.fileset.platforms.base import (
    AnyRequest,
    FilesetPlatformHelper,
    Question,
    Questions,
    check_count,
    check_known,
    check_own,
    download_url,
    embargoed,
    identified,
    item_name,
    license_of,
    manifest_file,
    path_of,
    quoted,
    same_origin,
)
from archec.fileset.status import (
    EmptyManifest,
    FilesetPlatformScopeError,
    PlatformError,
    PlatformGone,
    PlatformNotFound,
)

_NAMED_RECORD = re.compile(r"(?:/api|https?://[^/]+)/records?/([^/]+)/")
_NEWEST = re.compile(r"/api/records/([A-Za-z0-9-]+)/versions/latest/?$")
"""The URL in the API that redirects to the newest version of a record."""


class InvenioHelper(FilesetPlatformHelper):
    """InvenioRDM on configured hosts, and on any other by its pages."""

    name = "inveniordm"
    api = "/api"
    pages = ("/records/{work}", "/records/{version}")
    pattern = re.compile(
        r"/(?:api/)?records?/([A-Za-z0-9-]+)(?:/(?!(?:versions/)?latest(?:@|/?$))|$)"  # which are of the newest version
        r"|(?i:/doi/10\.[0-9.]+/(?:[a-z]+\.([0-9]+)|(?:[a-z0-9]+\.)?([a-z0-9]{5}-[a-z0-9]{5}))/?$)"
    )
    collections = re.compile(rf"/communities/([^/]+)|{_NEWEST.pattern}")

    def match_request(
        self, request: AnyRequest, resource: Resource | None = None, html_biblio: Mapping[str, Any] | None = None
    ) -> bool:
        """As the base class; if no hosts are known, also pages of records that name their record in the API."""
        return super().match_request(request, resource, html_biblio) or (
            resource is not None and not (self.config.hosts or self.hosts) and self._is_page(resource)
        )  # fmt: skip

    def url_of(self, request: IngestRequest, resource: Resource | None) -> str:
        """As the base class; also the URL of a page that is known by its content."""
        is_page = resource is not None and not self.serves(resource.terminal_url) and self._is_page(resource)
        return resource.terminal_url if resource is not None and is_page else super().url_of(request, resource)

    def _is_page(self, resource: Resource) -> bool:
        named = self.id_in(resource.terminal_url)
        own = f"{urlsplit(resource.terminal_url).netloc}/api/records/{named}"
        return bool(named) and (own.encode() in resource.body or own in resource.headers.get("link", ""))

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for a record, and for its files if the record does not list them."""
        url = self.url_of(request, resource)
        base, asked, newest = self.base(url), self.id_in(url), _NEWEST.search(path_of(url))
        if not (asked or newest) and (community := self.collections.search(path_of(url))):
            answer = yield Question(f"{base}/communities/{quoted(community[1])}/records?size=25")
            if answer.status == 404:  # of an older version, whose search has a parameter for it
                answer = yield Question(f"{base}/records?communities={quoted(community[1])}&size=25")
            members = [hit["id"].word() for hit in answer.json()["hits"]["hits"].items()]
            raise FilesetPlatformScopeError(f"{community[1]} is a community, not a record", members=members)
        if newest is None:
            self.named_in(url)
        where = f"{newest[1]}/versions/latest" if newest is not None else quoted(asked)
        answer = yield Question(f"{base}/records/{where}")
        record = _single(answer.json())
        known = record["id"].word()
        concept = _concept(record)
        work_doi = record["conceptdoi"].text_or_none() or record["parent"]["pids"]["doi"]["identifier"].text_or_none()
        is_work = bool(work_doi) and request.identifier.lower() == str(work_doi).lower() != str(_doi(record)).lower()
        named = request.identifier if is_work else asked
        if newest is None:
            _check_scope(named, known, is_concept=is_work or asked == concept, follow=follow)
        with identified(known):
            _check_published(record)
            restricted = self.restricted(base, lambda: _check_open(record))
            rows = _rows(record)
        if rows.is_null and not record["links"]["files"].is_null:
            answer = yield Question(same_origin(record["links"]["files"], base))
            if answer.status != 200:
                _check_open(record)
            listed = answer.json()
            rows = first_of(listed["contents"], listed["entries"])  # B2SHARE: a bucket
        folder = record["links"]["files"].text_or_none()
        pairs: Iterable[tuple[str | None, JsonValue]] = rows.members() if rows.is_object else (
            (None, row) for row in rows.items()
        )  # fmt: skip
        manifest = [_file(row, key, known, base, folder) for key, row in pairs]
        if not manifest:
            _check_open(record)
        if record["files"].is_object:
            check_count(record["files"]["count"], len(manifest))
        meta = record["metadata"]
        number = record["id"] if known.isdecimal() else record["versions"]["index"]
        return self.item(
            url, known, manifest, title=_title(meta), version=known, work_id=concept,
            order=[first_of(meta["relations"]["version"].first["index"], number).whole_or_none()],
            name=item_name(self.domain(url), known), meta=_item_meta(record, meta),
            page=record["links"]["self_html"].text_or_none() or record["links"]["html"].text_or_none(),
            bundle=record["links"]["archive"].text_or_none(),
            published=meta["publication_date"].tist() or record["created"].tist(), restricted=restricted,
            work_doi=work_doi,
        )  # fmt: skip


class ZenodoHelper(InvenioHelper):
    """zenodo.org."""

    name = "zenodo"
    hosts: ClassVar[tuple[str, ...]] = ("zenodo.org", "www.zenodo.org", "sandbox.zenodo.org")


class B2shareHelper(InvenioHelper):
    """B2SHARE, whose records are like those of older versions of Invenio, without links for files."""

    name = "b2share"
    hosts: ClassVar[tuple[str, ...]] = ("b2share.eudat.eu", "b2share.fz-juelich.de")


def _single(body: JsonValue) -> JsonValue:
    """The record in an answer, which may be a search result with one hit."""
    if "hits" not in body:
        return body
    hits = body["hits"]["hits"]
    if not hits.is_list:
        raise hits.error("a list")
    found = list(hits.items())
    if not found:
        raise PlatformNotFound("the platform has no such record")
    if len(found) != 1:
        raise PlatformError(f"hits.hits: {len(found)} records instead of one")
    return found[0]


def _concept(record: JsonValue) -> str:
    """The id of all versions together; empty if the record does not state it."""
    stated = record["conceptrecid"].word_or_none() or record["parent"]["id"].word_or_none()
    return stated or record["metadata"]["relations"]["version"].first["parent"]["pid_value"].word_or_none() or ""


def _doi(record: JsonValue) -> str | None:
    return record["doi"].text_or_none() or record["pids"]["doi"]["identifier"].text_or_none()


def _check_scope(asked: str, known: str, *, is_concept: bool, follow: bool) -> None:
    if is_concept:
        if not follow:
            members = [known] if known != asked else []
            raise FilesetPlatformScopeError(f"{asked} stands for all versions of a record", members=members)
    else:
        check_known(asked, known)


def _check_published(record: JsonValue) -> None:
    status = record["status"].raw
    if isinstance(status, int) and not isinstance(status, bool) and status >= 400:
        raise PlatformError(f"status: the answer is an error, {status}")
    deletion = record["deletion_status"]
    if record["tombstone"].is_object or (deletion.is_object and deletion["is_deleted"].raw is True):
        raise PlatformGone("the record was withdrawn")
    stage = record["metadata"]["publication_state"].raw  # B2SHARE
    is_draft = status in ("draft", "new_version_draft") or record["is_draft"].raw is True
    is_draft = is_draft or record["state"].raw == "unsubmitted" or stage in ("draft", "submitted")
    if is_draft or record["submitted"].raw is False or record["is_published"].raw is False:
        raise PlatformNotFound("the record is a draft")


def _rows(record: JsonValue) -> JsonValue:
    """The files that the record lists; null if it lists none. Raises EmptyManifest if files are disabled."""
    rows = record["files"]
    if not rows.is_object:
        return rows
    if not rows["enabled"].is_null and not rows["enabled"].flag():
        raise EmptyManifest("the record has metadata only")
    return rows["entries"]


def _check_open(record: JsonValue) -> None:
    """Raises PlatformRestrictedError for a record whose files are not open."""
    meta = record["metadata"]
    right = meta["access_right"].text_or_none()
    access = record["access"]
    files = access["files"].text_or_none() if access.is_object else None
    is_closed = not meta["open_access"].is_null and not meta["open_access"].flag()  # B2SHARE
    if (right or "open") == "open" and (files or "public") == "public" and not is_closed:
        return
    until = meta["embargo_date"].text_or_none()
    if access.is_object and access["embargo"].is_object:
        until = until or access["embargo"]["until"].text_or_none()
    word = "not open" if is_closed else right if right not in (None, "open") else files
    raise embargoed(f"the files are {word}", until)


def _file(row: JsonValue, key: str | None, record: str, base: str, folder: str | None) -> FilesetManifestFile:
    path = key or row["key"].text_or_none() or row["filename"].text()
    link = first_of(*(row["links"][name] for name in ("content", "download", "self")))
    if link.is_null and folder:  # a bucket of B2SHARE, or the list of files of a record
        link = JsonValue(f"{folder}/{quote(path)}{'/content' if folder.endswith('/files') else ''}", link.path)
    url = download_url(link, base)
    check_own(link, url, _NAMED_RECORD.search(url.partition("?")[0]), record, "record")
    sums = checksums(row["checksum"].text_or_none())
    size, kind = first_of(row["size"], row["filesize"]).whole_or_none(), row["mimetype"].text_or_none()
    return manifest_file(path, size, sums, url, kind, {"file_id": row["id"].word_or_none()})


def _title(meta: JsonValue) -> str | None:
    """The title; B2SHARE has a list of them."""
    return meta["title"].text_or_none() or meta["titles"].first["title"].text_or_none()


def _item_meta(record: JsonValue, meta: JsonValue) -> dict[str, object]:
    creators = [name for one in meta["creators"].items() if (name := _creator(one))]
    return {
        "date": meta["publication_date"].text_or_none(),
        "doi": _doi(record),
        "creator": creators,
        "description": meta["description"].text_or_none(),
        "version": meta["version"].text_or_none(),
        "license": license_of(meta["license"]) or license_of(meta["rights"]),
    }


def _creator(one: JsonValue) -> str | None:
    person = one["person_or_org"]
    return (person if person.is_object else one)["name"].text_or_none()
