"""What helpers for platforms have in common: questions to a platform, its answers, what both amount to.

A helper opens no connection. :meth:`FilesetPlatformHelper.questions` is a generator: it yields a :class:`Question`,
gets the :class:`PlatformAnswer`, and returns the data set, or raises what is in the way of it (``status``). So a
helper is a pure function of the answers. """

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urljoin, urlsplit

from msgspec import Struct

from archec.config.platforms import PlatformConfig
from archec.fileset import fields
from archec.fileset.checksums import Checksums
from archec.fileset.fields import Field
from archec.fileset.model import FilesetManifestFile, FilesetPlatformItem, IngestRequest, Resource
from archec.fileset.status import (
    FilesetPlatformScopeError,
    FilesetProblem,
    PlatformError,
    PlatformGone,
    PlatformHttpError,
    PlatformNotFound,
    PlatformRestrictedError,
)

MOST_FILES = 100_000
"""Files of a manifest; a platform that lists more is not read on."""
_MOST_PAGES = 5000
_LOOPBACK = re.compile(r"(?:127(?:\.[0-9]{1,3}){3}|localhost)(?::[0-9]+)?\Z")
_ITEM_NAME = re.compile("[^A-Za-z0-9_.-]+")


class Question(Struct, frozen=True):
    """A request to a platform's API. ``secret``: it carries the platform's token, where one is configured. ``page``: it
    is a page for people, to which robots.txt applies."""

    url: str
    accept: str = "application/json"
    secret: bool = True
    page: bool = False


class PlatformAnswer(Struct, frozen=True):
    """What came: the URL to which redirects led, status, headers (lower-case names), bytes. ``is_cut``: it is a large
    file in place of a page, and its bytes were not read."""

    url: str
    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    is_cut: bool = False

    def json(self) -> Field:
        """The JSON in it; raises what its status means, PlatformError if it is no JSON."""
        self.check()
        return fields.parse(self.body)

    def check(self) -> None:
        """Raises what the status means, where it is not 200."""
        if self.status == 200:
            return
        said = self.message
        if self.status == 410:
            raise PlatformGone(f"the platform has withdrawn it{said}")
        if self.status in (401, 403, 451):
            raise PlatformRestrictedError(f"the platform answers with HTTP {self.status}{said}")
        if self.status == 404:
            raise PlatformNotFound(f"the platform has no such data set{said}")
        raise PlatformHttpError(f"{self.url[:300]}: HTTP {self.status}{said}")

    @property
    def message(self) -> str:
        """What an error's JSON says, for a message; empty if it says nothing."""
        try:
            found = fields.parse(self.body)
            text = next((found[name].raw for name in ("message", "error", "detail") if name in found), "")
        except PlatformError:
            return ""
        return f": {text[:200]}" if isinstance(text, str) and text else ""


Questions = Generator[Question, PlatformAnswer, FilesetPlatformItem]
FileQuestions = Generator[Question, PlatformAnswer, list[FilesetManifestFile]]


class FilesetPlatformHelper:
    """One platform. Subclasses set ``name``, ``hosts``, ``api`` and ``rate`` as they are by default, and ``pattern``,
    which is in the path of every URL of a data set.

    ``api`` begins with ``/`` where each of the hosts has its own API. ``secret_header`` is how a token is sent;
    ``pages`` are the paths of the pages of a work and of one of its versions, if they follow from ``{work}`` and
    ``{version}``. ``is_documented``: there is an API that is meant for programs, so that robots.txt does not bind the
    downloads that it names.
    """

    name: ClassVar[str] = ""
    hosts: ClassVar[tuple[str, ...]] = ()
    api: ClassVar[str] = ""
    rate: ClassVar[str] = "60/min"
    pattern: ClassVar[re.Pattern[str]] = re.compile("")
    secret_header: ClassVar[tuple[str, str]] = ("Authorization", "Bearer {}")
    pages: ClassVar[tuple[str, str] | None] = None
    is_documented: ClassVar[bool] = True

    def __init__(
        self, config: PlatformConfig | None = None, ask: Callable[[Question], PlatformAnswer] | None = None
    ) -> None:
        """``ask`` answers the questions of :meth:`process_request`."""
        self.config = config or PlatformConfig()
        self._ask = ask

    # -- to be defined ----------------------------------------------------------------------------

    def matches(self, url: str) -> bool:
        """Whether a URL of one of the platform's hosts is one of a data set."""
        return self.pattern.search(path_of(url)) is not None

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for the data set behind the request's URL; ``follow``: a concept stands for its newest version."""
        raise NotImplementedError

    # -- the first proposal's interface -----------------------------------------------------------

    def match_request(
        self, request: IngestRequest, resource: Resource | None = None, html_biblio: Mapping[str, Any] | None = None
    ) -> bool:
        """Whether the request, or the landing page to which it led, is of this platform."""
        urls = [request.base_url] if resource is None else [resource.terminal_url, request.base_url]
        return self.config.enabled and any(self.serves(url) and self.matches(url) for url in urls)

    def process_request(
        self, request: IngestRequest, resource: Resource | None = None, html_biblio: Mapping[str, Any] | None = None
    ) -> FilesetPlatformItem:
        """The data set, by questions that ``ask`` answers."""
        if self._ask is None:
            raise TypeError("the helper was made without a function that answers its questions")
        asking = self.questions(request, resource)
        try:
            question = next(asking)
            while True:
                question = asking.send(self._ask(question))
        except StopIteration as done:
            item: FilesetPlatformItem = done.value
            return item

    # -- what helpers use -------------------------------------------------------------------------

    def serves(self, url: str) -> bool:
        """Whether the URL's host (and port) is one of the platform's; ``*.example.org`` stands for all below it."""
        host, hosts = host_of(url), self.config.hosts or self.hosts
        return any(host == one or (one.startswith("*.") and host.endswith(one[1:])) for one in map(str.lower, hosts))

    def trusts(self, url: str) -> bool:
        """Whether the platform's token may go to a URL: one of its hosts, or of its API. Over http it goes to loopback
        only, and to an API that is configured with http."""
        host, api = host_of(url), host_of(self.config.api or self.api)
        if not host or not (host == api or FilesetPlatformHelper.serves(self, url)):
            return False
        is_clear = host == api and self.config.api.lower().startswith("http:")
        return is_clear or urlsplit(url).scheme == "https" or _LOOPBACK.match(host) is not None

    def url_of(self, request: IngestRequest, resource: Resource | None) -> str:
        """The URL that is the platform's: that of the landing page, or the one that was requested."""
        if resource is not None and self.serves(resource.terminal_url) and self.matches(resource.terminal_url):
            return resource.terminal_url
        return request.base_url

    def id_in(self, url: str) -> str:
        """The id of the data set with this URL, as far as the URL says it; empty if it does not."""
        found = self.pattern.search(path_of(url))
        return found[1] or "" if found is not None and self.pattern.groups else ""

    def named_in(self, url: str) -> re.Match[str]:
        """The platform's ``pattern`` in a URL. Raises PlatformNotFound if it does not exist."""
        found = self.pattern.search(path_of(url))
        if found is None:
            raise PlatformNotFound(f"{url[:300]}: does not identify a data set")
        return found

    def base(self, url: str) -> str:
        """The base of the API, without a slash at its end, for a data set with this URL.

        Where the platform is configured with none of its usual hosts, each host has its own API.
        """
        own = self.api
        path = own if own.startswith("/") or not own else urlsplit(own).path
        given = self.config.api.rstrip("/")
        if given:
            return given if urlsplit(given).path.strip("/") else given + path
        elsewhere = self.config.hosts and not set(self.config.hosts).intersection((*self.hosts, host_of(own)))
        if own.startswith("/") or not own or elsewhere:
            parts = urlsplit(url)
            return f"{parts.scheme}://{parts.netloc}{path}"
        return own

    def domain(self, url: str) -> str:
        """The platform's domain: the host of the data set's URL."""
        return host_of(url).removeprefix("www.")

    def item(
        self,
        url: str,
        platform_id: str,
        manifest: list[FilesetManifestFile],
        *,
        title: str | None,
        order: tuple[int, ...] = (),
        version: str | None = None,
        work_id: str | None = None,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
        page: str | None = None,
        bundle: str | None = None,
        bundle_only: bool = False,
        published: int = 0,
        work_doi: str | None = None,
    ) -> FilesetPlatformItem:
        """The data set with this URL. By default ``version`` is its ``order`` with dots, ``work_id`` is the id of the
        version, ``name``, that of an item of archive.org, is made of domain, id and version, and ``meta`` for that item
        is the title. Raises PlatformError for too many files."""
        if len(manifest) > MOST_FILES:
            raise PlatformError(f"the answer: lists more than {MOST_FILES} files")
        domain, text = self.domain(url), ".".join(map(str, order)) if version is None else version
        return FilesetPlatformItem(
            platform_name=self.name,
            platform_domain=domain,
            platform_id=platform_id,
            manifest=manifest,
            archiveorg_item_name=name or item_name(domain, platform_id.rpartition("/")[2], f"v{text}" if text else ""),
            archiveorg_item_meta={name: value for name, value in {"title": title, **(meta or {})}.items() if value},
            web_base_url=page,
            web_bundle_url=bundle,
            bundle_only=bundle_only,
            work_id=work_id or platform_id,
            version=text,
            order=order,
            published=published,
            title=title or "",
            work_doi=work_doi or "",
        )


def host_of(url: str) -> str:
    """Host, and port where it is not the usual one, in lower case; empty if there is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    host = parts.hostname or ""
    return f"{host}:{port}" if port and port != {"http": 80, "https": 443}.get(parts.scheme) else host


def path_of(url: str) -> str:
    """The path of a URL, its escapes undone; as much of it as a data set may have."""
    return unquote(urlsplit(url[:8000]).path)


def query_of(url: str) -> dict[str, str]:
    """The query of a URL: the first value of each name."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def quoted(text: str) -> str:
    """Text as one part of a URL's path."""
    return quote(text, safe="")


def item_name(*parts: str) -> str:
    """The name of an item of archive.org: ``zenodo.org-7``."""
    return _ITEM_NAME.sub("_", "-".join(filter(None, parts)))[:100].strip("._-")


def license_of(field: Field) -> str | None:
    """What a field says of the licence: a URL, an id or a name, also within an object or a list; None if nothing."""
    first = next(field.one_or_more(), field)
    said = [first[name].raw for name in ("url", "uri", "id", "name")] if first.is_object else [first.raw]
    return next((fields.clean(one) for one in said if isinstance(one, str) and one.lower() not in ("", "none")), None)


def download_url(field: Field, base: str) -> str:
    """The URL in a field, absolute. Raises PlatformError if it is no http(s) URL."""
    text = field.text().strip()
    try:
        url = text if text.startswith(("https://", "http://")) else urljoin(base, text)
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and len(url) < 8000
    except ValueError:
        good = False
    if not good:
        raise PlatformError(f"{field.shown}: {text[:200]!r} is not a download URL")
    return url


def same_origin(field: Field, base: str) -> str:
    """As :func:`download_url`, for a further question: its host must be that of the API, which a token is for. If the
    API is asked over https, so is this."""
    url = download_url(field, base)
    if base.startswith("https://") and url.startswith("http://"):
        url = f"https{url[4:]}"
    if not host_of(url) or host_of(url) != host_of(base):
        raise PlatformError(f"{field.shown}: {url[:200]!r} is not on {host_of(base)}")
    return url


@contextmanager
def identified(platform_id: str) -> Iterator[None]:
    """Problems within it are of the data set with this id, whatever the id in the URL."""
    try:
        yield
    except FilesetProblem as problem:
        problem.platform_id = problem.platform_id or platform_id
        raise


def check_known(asked: str, known: str) -> None:
    """Raises FilesetPlatformScopeError where an answer is not of what was asked for."""
    if asked != known:
        raise FilesetPlatformScopeError(f"{asked} was asked for, and the answer is of {known}", members=[known])


def paged_files(
    page: str | None,
    base: str,
    files: Callable[[Field], Iterable[FilesetManifestFile]],
    following: Callable[[Field], Field],
) -> FileQuestions:
    """The files of all pages of a list; ``following`` is the link to the next page, null in the last one. Raises
    PlatformError for a list without an end."""
    found: list[FilesetManifestFile] = []
    asked: set[str] = set()
    while page is not None:
        if page in asked or len(asked) >= _MOST_PAGES or len(found) > MOST_FILES:
            raise PlatformError(f"{page[:300]}: the list of files does not come to an end")
        asked.add(page)
        answer = yield Question(page)
        body = answer.json()
        found += files(body)
        link = following(body)
        page = None if link.is_null else same_origin(link, base)
    return found


def manifest_file(
    path: str,
    size: int | None,
    sums: Checksums,
    url: str | None,
    mimetype: str | None = None,
    extra: dict[str, Any] | None = None,
    status: str | None = None,
) -> FilesetManifestFile:
    """A row as a platform tells of it."""
    kept = {name: value for name, value in (extra or {}).items() if value is not None}
    return FilesetManifestFile(
        path, size, sums.md5, sums.sha1, sums.sha256, mimetype or None, kept or None, status, url
    )  # fmt: skip
