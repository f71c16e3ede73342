"""Dataverse on any host: data sets by persistent or numeric id, and files, which stand for their data set.

Dataverse converts tabular files when they are deposited. The original is fetched: its size is known, but the stated
checksum may be that of either form, so it is not compared.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from urllib.parse import urljoin

from archec.fileset.checksums import checksums
from archec.fileset.fields import JsonValue, first_of
from archec.fileset.model import FilesetManifestFile, FilesetPlatformItem, IngestRequest, Resource
from archec.fileset.platforms.base import (
    FilesetPlatformHelper,
    PlatformAnswer,
    Question,
    Questions,
    check_known,
    identified,
    license_of,
    manifest_file,
    path_of,
    query_of,
    quoted,
)
from archec.fileset.status import (
    FilesetPlatformScopeError,
    PlatformError,
    PlatformGone,
    PlatformNotFound,
    PlatformRestrictedError,
    Status,
)

_PID = re.compile(r"(?:doi|hdl|perma1?|ark):.+", re.I)
_RESOLVER = re.compile(r"https?://(?:(?:dx\.)?(doi)\.org|(hdl)\.handle\.net)/", re.I)
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_OF_API = re.compile(r"/api/(?:v1/)?(datasets|files)/(?:([0-9]+)|:persistentId)(?:/versions/([0-9.]+))?(?:/|$)")
"""A URL of the API, with the number of a data set or file, and the version."""


class DataverseHelper(FilesetPlatformHelper):
    """Any Dataverse: matches URLs with ``persistentId=`` on any host, and those of the configured hosts."""

    name = "dataverse"
    hosts = ("dataverse.harvard.edu", "demo.dataverse.org", "borealisdata.ca", "dataverse.no", "dataverse.nl",
             "data.aussda.at", "data.goettingen-research-online.de", "entrepot.recherche.data.gouv.fr")  # fmt: skip
    api = "/api"
    secret_header = ("X-Dataverse-key", "{}")
    pattern = re.compile(rf"/(?:dataset|file|citation)(?:\.xhtml)?/?$|{_OF_API.pattern}")
    collections = re.compile(r"/dataverse(?:/([^/]+)|\.xhtml)/?$")
    pages = ("/dataset.xhtml?persistentId={work}", "/dataset.xhtml?persistentId={work}&version={version}")

    def serves(self, url: str) -> bool:
        """As the base class; also any host if the URL has a persistent id."""
        return _pid(url) is not None or super().serves(url)

    def trusts(self, url: str) -> bool:
        """As the base class, but only if hosts or an API are configured: a token belongs to one installation."""
        return bool(self.config.hosts or self.config.api) and super().trusts(url)

    def matches(self, url: str) -> bool:
        """As the base class; also any URL with a persistent id."""
        return _pid(url) is not None or super().matches(url)

    def id_in(self, url: str) -> str:
        """The persistent id."""
        return _pid(url) or ""

    def version_in(self, url: str) -> str:
        """The version, unless it is named by a word such as ``:latest``."""
        place = _OF_API.search(path_of(url))
        version = (place[3] if place is not None else "") or query_of(url).get("version", "")
        return version if _VERSION.fullmatch(version) else ""

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for the newest version of a data set, or for the one in the URL."""
        url = self.url_of(request, resource)
        base, query = self.base(url), query_of(url)
        if found := self.collections.search(path_of(url)):
            alias = found[1] or query.get("alias") or ":root"
            answer = yield Question(f"{base}/dataverses/{quoted(alias)}/contents")
            listed = _data(answer).items()
            members = [one["persistentUrl"].text_or_none() or one["title"].text_or_none() for one in listed]
            raise FilesetPlatformScopeError(f"{alias} is a collection, not a data set", members=members)
        pid, number, file = _pid(url), query.get("id"), query.get("fileId")
        if (place := _OF_API.search(path_of(url))) is not None and place[2]:
            number, file = (place[2], None) if place[1] == "datasets" else (None, place[2])
        if file or (pid and "file" in path_of(url).rpartition("/")[2]):
            pid, number = (yield from _parent(base, pid, file)), None
        if pid is None and not (number or "").isdecimal():
            raise PlatformNotFound(f"{url[:300]}: does not identify a data set")
        where = f"datasets/:persistentId/{{}}?persistentId={quoted(pid)}" if pid else f"datasets/{number}/{{}}"
        answer = yield Question(f"{base}/{where.format('')}")
        if answer.status == 404 and pid is not None:
            pid = yield from _parent(base, pid, None)
            where = f"datasets/:persistentId/{{}}?persistentId={quoted(pid)}"
            answer = yield Question(f"{base}/{where.format('')}")
        data = _data(answer)
        version = data["latestVersion"] if "latestVersion" in data or "files" not in data else data
        if wanted := self.version_in(url):
            if not _is_version(version, wanted):
                answer = yield Question(f"{base}/{where.format('versions/' + wanted)}")
                version = _data(answer)
                if not _is_version(version, wanted):
                    known = ".".join(map(str, _order(version)))
                    raise FilesetPlatformScopeError(f"version {wanted} was asked for, and the answer is of {known}")
        elif version["versionState"].raw == "DRAFT":  # which the owner of the token may see
            answer = yield Question(f"{base}/{where.format('versions/:latest-published')}")
            version = _data(answer)
        if version.is_null:
            if not data["publicationDate"].is_null:
                raise PlatformGone("the data set was deaccessioned")
            raise PlatformNotFound("the data set has no published version")
        known = _known(data, version)
        if pid is not None:
            check_known(pid.lower(), known.lower())
        with identified(known):
            _check_state(version)
            rows = version["files"]
            if rows.is_null:
                of = ".".join(map(str, _order(version))) or ":latest-published"
                answer = yield Question(f"{base}/{where.format(f'versions/{of}/files')}")
                rows = _data(answer)
            return self._item(url, base, known, version, rows)

    def _item(self, url: str, base: str, known: str, version: JsonValue, rows: JsonValue) -> FilesetPlatformItem:
        now = int(time.time())
        may_read = self.may_read(base)
        manifest = [_file(row, base, now, may_read=may_read) for row in rows.items()]
        closed = [file for file in manifest if file.status == Status.PLATFORM_RESTRICTED]
        if manifest and len(closed) == len(manifest):
            due = min(filter(None, (int((file.extra or {}).get("due", 0)) for file in closed)), default=0)
            raise PlatformRestrictedError("all files are restricted, embargoed or no longer available", due=due)
        meta = {
            "date": (version["releaseTime"].text_or_none() or "")[:10],
            "doi": known[4:] if known.lower().startswith("doi:") else "",
            "license": license_of(version["license"]),
        }
        is_closed = any(file.status is None and "why" in (file.extra or {}) for file in manifest)
        return self.item(
            url, known, manifest, title=_title(version), order=_order(version), meta=meta,
            page=urljoin(base, f"/dataset.xhtml?persistentId={quoted(known)}"),
            bundle=f"{base}/access/dataset/:persistentId/?persistentId={quoted(known)}&format=original",
            published=version["releaseTime"].tist() or version["lastUpdateTime"].tist(),
            restricted=PlatformRestrictedError("some files are restricted") if is_closed else None,
        )  # fmt: skip


def _pid(url: str) -> str | None:
    query = query_of(url)
    pid = (query.get("persistentId") or query.get("globalId") or "").rstrip("/")
    pid = _RESOLVER.sub(lambda match: f"{match[1] or match[2]}:", pid, count=1)
    return pid if _PID.fullmatch(pid) else None


def _data(answer: PlatformAnswer) -> JsonValue:
    body = answer.json()
    if body["status"].raw == "ERROR":
        raise PlatformError(f"status: the answer is an error{answer.message}")
    data = body["data"]
    if not (data.is_object or data.is_list):
        raise data.error("an object")
    return data


def _parent(base: str, pid: str | None, number: str | None) -> Generator[Question, PlatformAnswer, str]:
    """Asks for the persistent id of the data set that a file belongs to."""
    where = f"files/:persistentId?persistentId={quoted(pid)}&" if pid else f"files/{quoted(number or '')}?"
    answer = yield Question(f"{base}/{where}returnDatasetVersion=true&returnOwners=true")
    data = _data(answer)
    owner = data["dataFile"]["isPartOf"]
    for field in (data["datasetVersion"]["datasetPersistentId"], owner["persistentIdentifier"], owner["identifier"]):
        if isinstance(field.raw, str) and _PID.fullmatch(field.raw):
            return field.text()
    if pid is not None and pid.count("/") > 1:
        return pid.rpartition("/")[0]
    raise PlatformError(f"{data['datasetVersion'].shown}: the answer does not say of which data set the file is")


def _known(data: JsonValue, version: JsonValue) -> str:
    stated = first_of(version["datasetPersistentId"], data["datasetPersistentId"])
    if not stated.is_null:
        return stated.text()
    protocol, authority = data["protocol"].text(), data["authority"].text()
    return f"{protocol}:{authority}/{data['identifier'].text()}"


def _check_state(version: JsonValue) -> None:
    state = version["versionState"].text_or_none() or "RELEASED"
    if state == "DEACCESSIONED":
        raise PlatformGone("the version was deaccessioned")
    if state != "RELEASED":
        raise PlatformNotFound(f"the version is not published: {state[:40]}")


def _order(version: JsonValue) -> tuple[int, ...]:
    major, minor = version["versionNumber"].whole_or_none(), version["versionMinorNumber"].whole_or_none()
    return () if major is None else (major, minor or 0)


def _is_version(version: JsonValue, wanted: str) -> bool:
    """Whether a version has the number ``wanted`` (``2.0``; ``2`` matches any 2.x)."""
    numbers = tuple(int(part[:9]) for part in wanted.split("."))
    return not version.is_null and _order(version)[: len(numbers)] == numbers


def _file(row: JsonValue, base: str, now: int, *, may_read: bool) -> FilesetManifestFile:
    data = row["dataFile"]
    original = data["originalFileName"].text_or_none()
    is_tabular = bool(original) or data["tabularData"].flag() or not data["originalFileFormat"].is_null
    name = original or row["label"].text_or_none() or data["filename"].text()
    folder = row["directoryLabel"].text_or_none() or data["directoryLabel"].text_or_none()
    path = f"{folder.strip('/')}/{name}" if folder else name
    number = data["id"].whole_or_none()
    own = data["persistentId"].text_or_none()
    if number is None and not own:
        raise data["id"].error("a whole number")
    where = f"{number}?" if number is not None else f":persistentId?persistentId={quoted(own or '')}&"
    url = f"{base}/access/datafile/{where}{'format=original' if is_tabular else ''}".rstrip("?&")
    size = data["originalFileSize"].whole_or_none() if is_tabular else data["filesize"].whole_or_none()
    checksum = data["checksum"]
    kind, value = checksum["type"].text_or_none(), checksum["value"].text_or_none()
    sums = checksums(f"{kind}:{value}" if kind and value else None, data["md5"].text_or_none(), kind="md5")
    extra: dict[str, object] = {"file_id": str(number) if number is not None else own}
    mimetype = data["contentType"].text_or_none()
    if is_tabular:
        extra |= {
            "soft_checksum": True,
            "archival_name": data["filename"].text_or_none(),
            "archival_size": data["filesize"].whole_or_none(),
            "archival_mimetype": mimetype,
            "unf": data["UNF"].text_or_none(),
        }
        mimetype = data["originalFileFormat"].text_or_none() or mimetype
    status = _closed(row, data, extra, now)
    if may_read and status == Status.PLATFORM_RESTRICTED:
        status = None
    return manifest_file(path, size, sums, url, mimetype, extra, status)


def _closed(row: JsonValue, data: JsonValue, extra: dict[str, object], now: int) -> str | None:
    """The status of a file that is not available, None if it is. Adds the reason and the end of an embargo to
    ``extra``."""
    embargo, retention = first_of(row["embargo"], data["embargo"]), first_of(row["retention"], data["retention"])
    until, since = embargo["dateAvailable"].tist(), retention["dateUnavailable"].tist()
    if until > now:
        extra |= {"due": until, "why": f"embargoed until {embargo['dateAvailable'].text()}"}
        return Status.PLATFORM_RESTRICTED.value
    if since and since <= now:
        extra["why"] = f"no longer available since {retention['dateUnavailable'].text()}"
        return Status.PLATFORM_RESTRICTED.value
    if row["restricted"].flag() or data["restricted"].flag():
        extra["why"] = "restricted"
        return Status.PLATFORM_RESTRICTED.value
    return None


def _title(version: JsonValue) -> str | None:
    fields = version["metadataBlocks"]["citation"]["fields"].items()
    titles = (field["value"] for field in fields if field["typeName"].raw == "title")
    return next((title.text_or_none() for title in titles if isinstance(title.raw, str)), None)
