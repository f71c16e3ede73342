"""Figshare and its portals, and 4TU.ResearchData, which has the same API: articles and their versions."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from itertools import count
from typing import Any, ClassVar

from archec.fileset.checksums import checksums
from archec.fileset.fields import JsonValue, first_of
from archec.fileset.model import FilesetManifestFile, IngestRequest, Resource
from archec.fileset.platforms.base import (
    MOST_FILES,
    UUID,
    AnyRequest,
    FilesetPlatformHelper,
    PlatformAnswer,
    Question,
    Questions,
    check_count,
    check_known,
    check_own,
    download_url,
    embargoed,
    license_of,
    manifest_file,
    path_of,
)
from archec.fileset.status import (
    EmptyManifest,
    FilesetPlatformScopeError,
    PlatformError,
    PlatformRestrictedError,
    Status,
)

_MOST_SHOWN = 10
"""The most files that an article of Figshare lists itself; its further ones are in a list of their own."""
_PAGE = 1000
_DOWNLOAD = re.compile("(https?://.+)/files/[0-9]+")
"""The URL of a file. That of all files of an article is beside it."""
_NUMBER = r"[0-9]{3,}"
_OF_ARTICLE = re.compile(rf"/file/({UUID})/")
"""The URL of a file of 4TU, which names its article."""


class FigshareHelper(FilesetPlatformHelper):
    """figshare.com and the portals of institutions."""

    name = "figshare"
    hosts: ClassVar[tuple[str, ...]] = ("figshare.com", "*.figshare.com")
    api = "https://api.figshare.com/v2"
    pages = ("/articles/{work}", "/articles/{work}/{version}")
    secret_header = ("Authorization", "token {}")
    shows_all: ClassVar[bool] = False
    pattern = re.compile(
        rf"/(?:articles|datasets|ndownloader/items)/(?:.*?/)??({_NUMBER}|{UUID})"
        r"(?:/(?:versions/)?(?P<version>[0-9]{1,4}))?(?:/files)?/?$"  # a longer number is an id, and this a name
    )
    collections = re.compile(
        rf"/(collections|projects)/(?:.*?/)??({_NUMBER}|{UUID})(?:/[0-9]{{1,4}})?(?:/articles)?/?$"
    )

    def match_request(
        self, request: AnyRequest, resource: Resource | None = None, html_biblio: Mapping[str, Any] | None = None
    ) -> bool:
        """As the base class; also landing pages on other hosts that contain ``.figshare.com/``, since institutions may
        have portals on their own hosts."""
        return super().match_request(request, resource, html_biblio) or (
            resource is not None and not self.config.hosts
            and self.matches(resource.terminal_url) and b".figshare.com/" in resource.body
        )  # fmt: skip

    def id_in(self, url: str) -> str:
        """The id of the article, which may be a UUID in upper case."""
        return super().id_in(url).lower()

    def url_of(self, request: IngestRequest, resource: Resource | None) -> str:
        """The URL of the landing page on any host, if it matches; else the requested one."""
        is_page = resource is not None and self.matches(resource.terminal_url)
        return resource.terminal_url if resource is not None and is_page else request.base_url

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for the version of an article in the URL, or for its newest version."""
        url = self.url_of(request, resource)
        path, base = path_of(url), self.base(url)
        if not self.id_in(url) and (collection := self.collections.search(path)):
            kind, own = collection.groups()
            answer = yield Question(f"{base}/{kind}/{own}/articles?page_size=100")
            members = [first_of(one["id"], one["uuid"]).word() for one in answer.json().items()]
            raise FilesetPlatformScopeError(f"{own} is a {kind[:-1]}, not an article", members=members)
        asked, version = self.named_in(url)[1].lower(), self.version_in(url)
        where = f"{base}/articles/{asked}" + (f"/versions/{version}" if version else "")
        answer = yield Question(where)
        article = answer.json()
        if "embargo_type" in article and "id" not in article:
            _check_open(article)  # 4TU says no more of a data set that is under an embargo as a whole
        known = first_of(article["id"], article["uuid"]).word()
        if article["uuid"].raw != asked:
            check_known(asked, known)
        number = article["version"].whole_or_none() or (int(version) if version else None)
        if version and number is not None and int(version) != number:
            raise FilesetPlatformScopeError(f"version {version} was asked for, and the answer is of {number}")
        rows = list(article["files"].items())
        if not rows:
            _check_open(article)
        restricted = self.restricted(base, lambda: _check_open(article))
        if len(rows) == _MOST_SHOWN and not self.shows_all:
            rows = yield from _all_rows(where, article, rows)
        folders = article["folder_structure"] if article["folder_structure"].is_object else JsonValue(None)
        uuid = article["uuid"].word_or_none() or ""
        files = [_file(row, folders, base, uuid.lower()) for row in rows]
        place = next((link[1] for file in files if (link := _DOWNLOAD.fullmatch(file.platform_url or ""))), None)
        return self.item(
            url, known, files, title=article["title"].text_or_none(),
            order=[number], meta=_item_meta(article),
            bundle=f"{place}/articles/{known}/versions/{number}" if place and number is not None else None,
            page=article["url_public_html"].text_or_none() or article["figshare_url"].text_or_none(),
            published=article["published_date"].tist(), restricted=restricted,
            work_doi=re.sub(r"\.v[0-9]+$", "", article["doi"].text_or_none() or ""),
        )  # fmt: skip


class FourTuHelper(FigshareHelper):
    """4TU.ResearchData."""

    name = "4tu"
    hosts: ClassVar[tuple[str, ...]] = ("data.4tu.nl",)
    api = "/v2"
    secret_header = FilesetPlatformHelper.secret_header
    shows_all: ClassVar[bool] = True


def _check_open(article: JsonValue) -> None:
    """Raises the FilesetProblem of an article without files that are public."""
    public, is_embargoed = article["is_public"], article["is_embargoed"].flag()
    if not public.is_null and not public.flag():
        raise PlatformRestrictedError("the article is not public")
    if is_embargoed or article["is_confidential"].flag() or article["download_disabled"].flag():
        why = f"the files are {'embargoed' if is_embargoed else 'confidential'}"
        raise embargoed(why, article["embargo_date"].text_or_none())
    if article["is_metadata_record"].flag():
        raise EmptyManifest("the article has metadata only")
    if article["files"].is_null:
        why = "the article does not list its files, as during an embargo"
        raise embargoed(why, article["embargo_date"].text_or_none())


def _all_rows(
    where: str, article: JsonValue, shown: list[JsonValue]
) -> Generator[Question, PlatformAnswer, list[JsonValue]]:
    """Asks for the files of an article, page by page. ``shown`` are those that it lists itself; they are all if there
    are no such pages and they have its size. A short page is the last one if the files have the article's size, since
    the platform may give fewer rows than it was asked for. Raises PlatformError if full pages repeat files."""
    rows: list[JsonValue] = []
    seen: set[str | None] = set()
    size = article["size"].whole_or_none() or 0
    for number in count(1):
        answer = yield Question(f"{where}/files?page={number}&page_size={_PAGE}")
        if answer.status == 404 and not rows and size in (0, _size(shown)):
            return shown
        more = list(answer.json().items())
        ids = {row["id"].word_or_none() for row in more} - {None}
        if not seen.isdisjoint(ids):
            if len(more) >= _PAGE:
                raise PlatformError(f"{where}/files: page {number} lists a file again")
            break
        seen |= ids
        rows += more
        if not more or (len(more) < _PAGE and size <= _size(rows)) or len(rows) > MOST_FILES:
            break
    check_count(JsonValue(len(shown), "files"), len(rows))
    return rows


def _size(rows: list[JsonValue]) -> int:
    return sum(row["size"].whole_or_none() or 0 for row in rows)


def _file(row: JsonValue, folders: JsonValue, base: str, uuid: str) -> FilesetManifestFile:
    number, size = row["id"].word_or_none(), row["size"].whole_or_none()
    folder = folders[number or ""].text_or_none()
    path = f"{folder.strip('/')}/{row['name'].text()}" if folder else row["name"].text()
    extra: dict[str, object] = {"file_id": number}
    if row["is_link_only"].flag():
        extra["link"] = row["download_url"].text_or_none()
        return manifest_file(path, None, checksums(), None, None, extra, Status.SKIPPED_LINK_ONLY.value)
    sums = checksums(row["computed_md5"].text_or_none(), row["supplied_md5"].text_or_none(), kind="md5")
    url = download_url(row["download_url"], base)
    if uuid:
        check_own(row["download_url"], url, _OF_ARTICLE.search(path_of(url).lower()), uuid, "article")
    return manifest_file(path, size, sums, url, row["mimetype"].text_or_none(), extra)


def _item_meta(article: JsonValue) -> dict[str, object]:
    return {
        "date": article["published_date"].text_or_none(),
        "doi": article["doi"].text_or_none(),
        "creator": [name for one in article["authors"].items() if (name := one["full_name"].text_or_none())],
        "description": article["description"].text_or_none(),
        "license": license_of(article["license"]),
    }
