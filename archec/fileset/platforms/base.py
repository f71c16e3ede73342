"""The base class of platform helpers, with the questions that they ask and the answers that they get.

A helper opens no connections. :meth:`FilesetPlatformHelper.questions` is a generator: it yields a :class:`Question`,
is sent the :class:`PlatformAnswer`, and finally returns the data set or raises an exception of ``status``. So a helper
is a pure function of the answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from archec.config.types import PlatformConfig
from archec.digest import sha256_hex
from archec.fileset import fields
from archec.fileset.checksums import Checksums
from archec.fileset.fields import JsonValue
from archec.fileset.json_lines import request as request_from
from archec.fileset.model import FilesetManifestFile, FilesetPlatformItem, IngestRequest, Resource
from archec.fileset.status import (
    FilesetPlatformScopeError,
    FilesetProblem,
    PlatformError,
    PlatformGone,
    PlatformHttpError,
    PlatformNotFound,
    PlatformRestrictedError,
    Status,
)
from archec.web.door import WebError, located

MOST_FILES = 100_000
"""The most files that are read of a platform's list."""
_MOST_PAGES = 5000
_LOOPBACK = re.compile(r"(?:127(?:\.[0-9]{1,3}){3}|\[::1\]|localhost)(?::[0-9]+)?\Z")
UUID = r"(?i:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
"""The pattern of a UUID in a URL, in either case."""
_ITEM_NAME = re.compile("[^A-Za-z0-9_.-]+")


class Question(Struct, frozen=True):
    """A request to a platform. ``secret``: the platform's token is sent with it, if one is configured. ``page``: it is
    for a web page, to which robots.txt applies, and not for an API. ``only_page``: the body of anything else is not
    read."""

    url: str
    accept: str = "application/json"
    secret: bool = True
    page: bool = False
    only_page: bool = False


class PlatformAnswer(Struct, frozen=True):
    """A response: the URL after all redirects, status, headers (with lower-case names) and body. ``is_cut``: a file was
    sent instead of a page, and its body was not read."""

    url: str
    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    is_cut: bool = False

    def json(self) -> JsonValue:
        """Parses the body as JSON. Raises as ``check`` does, and PlatformError if it is not JSON."""
        self.check()
        return fields.parse(self.body)

    def check(self) -> None:
        """Raises the FilesetProblem for a status other than 200."""
        if self.status == 200:
            return
        message = self.message
        if self.status == 410:
            raise PlatformGone(f"the platform has withdrawn it{message}")
        if self.status in (401, 403, 451):
            raise PlatformRestrictedError(f"the platform answers with HTTP {self.status}{message}")
        if self.status == 404:
            raise PlatformNotFound(f"the platform has no such data set{message}")
        raise PlatformHttpError(f"{self.url[:300]}: HTTP {self.status}{message}")

    @property
    def message(self) -> str:
        """The message in the JSON of an error, with a colon before it; empty if there is none."""
        try:
            found = fields.parse(self.body)
            text = next((found[name].raw for name in ("message", "error", "detail") if name in found), "")
        except PlatformError:
            return ""
        return f": {text[:200]}" if isinstance(text, str) and text else ""


AnyRequest = IngestRequest | Mapping[str, Any]
"""A request, or the JSON object of one."""
Questions = Generator[Question, PlatformAnswer, FilesetPlatformItem]
FileQuestions = Generator[Question, PlatformAnswer, list[FilesetManifestFile]]


class FilesetPlatformHelper:
    """Base class for platforms. Subclasses set ``name``, the defaults of ``hosts``, ``api`` and ``rate``, and
    ``pattern``, a regular expression found in the path of every URL of a data set; its first group that matches is the
    id. ``collections`` is one for the URLs of collections, communities and the like.

    ``api`` begins with ``/`` if each host has its own API. ``secret_header`` is the header for a token, ``pages`` the
    paths of the pages of a work and of one of its versions, with ``{work}`` and ``{version}``; None if they cannot be
    derived. ``is_documented``: the platform has an API for programs, so robots.txt does not apply to its downloads.
    """

    name: ClassVar[str] = ""
    hosts: ClassVar[tuple[str, ...]] = ()
    api: ClassVar[str] = ""
    rate: ClassVar[str] = "60/min"
    pattern: ClassVar[re.Pattern[str]] = re.compile("")
    collections: ClassVar[re.Pattern[str]] = re.compile("(?!)")
    secret_header: ClassVar[tuple[str, str]] = ("Authorization", "Bearer {}")
    pages: ClassVar[tuple[str, str] | None] = None
    is_documented: ClassVar[bool] = True

    def __init__(
        self, config: PlatformConfig | None = None, ask: Callable[[Question], PlatformAnswer] | None = None
    ) -> None:
        """``ask`` sends the questions of :meth:`process_request` and returns the answers."""
        self.config = config or PlatformConfig()
        self._ask = ask

    # -- to be defined ----------------------------------------------------------------------------

    def matches(self, url: str) -> bool:
        """Whether a URL of one of the platform's hosts is that of a data set or a collection."""
        return any(pattern.search(path_of(url)) for pattern in (self.pattern, self.collections))

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks the platform for the data set of a request. ``follow``: the id of all versions stands for the newest."""
        raise NotImplementedError

    # -- the first proposal's interface -----------------------------------------------------------

    def match_request(
        self, request: AnyRequest, resource: Resource | None = None, html_biblio: Mapping[str, Any] | None = None
    ) -> bool:
        """Whether the request, or the landing page that it led to, belongs to this platform."""
        asked = _request_of(request).base_url
        urls = [asked] if resource is None else [resource.terminal_url, asked]
        return any(self.serves(url) and self.matches(url) for url in urls)

    def process_request(
        self, request: AnyRequest, resource: Resource | None = None, html_biblio: Mapping[str, Any] | None = None
    ) -> FilesetPlatformItem:
        """Returns the data set of a request, using ``ask`` for questions."""
        if self._ask is None:
            raise TypeError("the helper was made without a function that answers its questions")
        asking = self.questions(_request_of(request), resource)
        try:
            question = next(asking)
            while True:
                question = asking.send(self._ask(question))
        except StopIteration as done:
            item: FilesetPlatformItem = done.value
            return item

    # -- what helpers use -------------------------------------------------------------------------

    def serves(self, url: str) -> bool:
        """Whether the host (and port) of a URL is one of the platform's; ``*.example.org`` matches all subdomains."""
        host, hosts = host_of(url), self.config.hosts or self.hosts
        return any(host == one or (one.startswith("*.") and host.endswith(one[1:])) for one in map(str.lower, hosts))

    def trusts(self, url: str) -> bool:
        """Whether the platform's token may be sent to a URL: if it is on one of its hosts or its API's, and uses https.
        Plain http is allowed for loopback, and for an API that is configured with http."""
        host, api = host_of(url), host_of(self.config.api or self.api)
        if not host or not (host == api or FilesetPlatformHelper.serves(self, url)):
            return False
        is_clear = host == api and self.config.api.lower().startswith("http:")
        return is_clear or urlsplit(url).scheme == "https" or _LOOPBACK.match(host) is not None

    def may_read(self, base: str) -> bool:
        """Whether a token is sent to the API with this base URL, so that only its answers say what is restricted."""
        return bool(self.config.token) and self.trusts(base)

    def restricted(self, base: str, check: Callable[[], None]) -> PlatformRestrictedError | None:
        """The PlatformRestrictedError that ``check`` raises, if any. Raises it unless a token may open the data set."""
        try:
            check()
        except PlatformRestrictedError as error:
            if not self.may_read(base):
                raise
            return error
        return None

    def url_of(self, request: IngestRequest, resource: Resource | None) -> str:
        """The URL to ask about: that of the landing page if it is the platform's, else the requested one."""
        if resource is not None and self.serves(resource.terminal_url) and self.matches(resource.terminal_url):
            return resource.terminal_url
        return request.base_url

    def id_in(self, url: str) -> str:
        """The id of the data set in a URL; empty if there is none."""
        found = self.pattern.search(path_of(url))
        return next(filter(None, found.groups()), "") if found is not None else ""

    def version_in(self, url: str) -> str:
        """The version in a URL, apart from the id: the group ``version`` of ``pattern``. Empty if there is none."""
        found = self.pattern.search(path_of(url))
        return (found.groupdict().get("version") or "") if found is not None else ""

    def named_in(self, url: str) -> re.Match[str]:
        """The match of ``pattern`` in a URL. Raises PlatformNotFound if there is none."""
        found = self.pattern.search(path_of(url))
        if found is None:
            raise PlatformNotFound(f"{url[:300]}: does not identify a data set")
        return found

    def base(self, url: str) -> str:
        """The base URL of the API for a data set with this URL, without a trailing slash.

        If the platform is configured with other hosts than its usual ones, each host has its own API.
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
        order: Iterable[int | None] = (),
        version: str | None = None,
        work_id: str | None = None,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
        page: str | None = None,
        bundle: str | None = None,
        bundle_only: bool = False,
        published: int = 0,
        work_doi: str | None = None,
        restricted: PlatformRestrictedError | None = None,
    ) -> FilesetPlatformItem:
        """Builds the description of the data set with this URL. ``name`` and ``meta`` are name and metadata of an item
        of archive.org; the title is added to ``meta``. Defaults: ``version`` is ``order`` with dots, ``work_id`` the id
        of the version, ``name`` is built from domain, id and version. ``restricted``: why files are not open to
        everybody; the end of an embargo is added to them. Numbers that are None are left out of ``order``. Raises
        PlatformError for too many files."""
        if len(manifest) > MOST_FILES:
            raise PlatformError(f"the answer: lists more than {MOST_FILES} files")
        if restricted is not None and restricted.due:
            manifest = [replace(file, extra={"due": restricted.due, **(file.extra or {})}) for file in manifest]
        numbers = tuple(number for number in order if number is not None)
        domain, text = self.domain(url), ".".join(map(str, numbers)) if version is None else version
        return FilesetPlatformItem(
            platform_name=self.name,
            platform_status=(Status.PLATFORM_RESTRICTED if restricted is not None else Status.SUCCESS).value,
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
            order=numbers,
            published=published,
            title=title or "",
            work_doi=work_doi or "",
        )


def _request_of(request: AnyRequest) -> IngestRequest:
    return request if isinstance(request, IngestRequest) else request_from(request)


def host_of(url: str) -> str:
    """The host as it is requested: in lower case and ASCII, with the port unless it is the default. Empty if nothing
    can be requested under this URL."""
    try:
        return located(url).origin.netloc
    except WebError:
        return ""


def path_of(url: str) -> str:
    """The unquoted path of a URL, of which only the first 8000 characters are read."""
    return unquote(urlsplit(url[:8000]).path)


def query_of(url: str) -> dict[str, str]:
    """The query parameters of a URL, with the first value of each."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def quoted(text: str) -> str:
    """Quotes text as one segment of a URL's path."""
    return quote(text, safe="")


def item_name(domain: str, *ids: str) -> str:
    """The name of an item of archive.org, such as ``zenodo.org-7``. If it is long, or ``ids`` have other characters, it
    ends with a checksum, so that no other data set has it."""
    whole = "-".join([domain.replace(":", "_"), *filter(None, ids)])
    name = _ITEM_NAME.sub("_", whole).strip("._-")
    return name if name == whole and len(name) <= 100 else f"{name[:83]}-{sha256_hex(whole.encode())[:16]}"


def license_of(field: JsonValue) -> str | None:
    """The licence in a field, possibly within an object or list: its URL, id or name; None if there is none."""
    first = field.first
    values = [first[name].raw for name in ("url", "uri", "id", "name")] if first.is_object else [first.raw]
    return next((fields.clean(one) for one in values if isinstance(one, str) and one.lower() not in ("", "none")), None)


def download_url(field: JsonValue, base: str) -> str:
    """The absolute URL in a field. Raises PlatformError if it is not an http, https or ftp URL."""
    text = field.text().strip()
    try:
        url = text if text.startswith(("https://", "http://")) else urljoin(base, text)
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https", "ftp") and parts.hostname and len(url) < 8000
    except ValueError:
        good = False
    if not good:
        raise PlatformError(f"{field.shown}: {text[:200]!r} is not a download URL")
    return url


def same_origin(field: JsonValue, base: str) -> str:
    """As :func:`download_url`, for a URL to send a question to: its host must be that of the API, because of tokens. An
    http URL becomes https if the API's is."""
    url = download_url(field, base)
    if base.startswith("https://") and url.startswith("http://"):
        url = f"https{url[4:]}"
    if urlsplit(url).scheme == "ftp" or not host_of(url) or host_of(url) != host_of(base):
        raise PlatformError(f"{field.shown}: {url[:200]!r} is not on {host_of(base)}")
    return url


@contextmanager
def identified(platform_id: str) -> Iterator[None]:
    """Sets ``platform_id`` of problems that are raised in its block, whatever the id in the URL."""
    try:
        yield
    except FilesetProblem as problem:
        problem.platform_id = problem.platform_id or platform_id
        raise


def embargoed(what: str, until: str | None) -> PlatformRestrictedError:
    """The PlatformRestrictedError for ``what``, with the date at which an embargo ends, if it is known."""
    return PlatformRestrictedError(what + (f" until {until}" if until else ""), due=fields.tist_of(until or ""))


def check_known(asked: str, known: str) -> None:
    """Raises FilesetPlatformScopeError if an answer describes another data set than the one asked for."""
    if asked != known:
        raise FilesetPlatformScopeError(f"{asked} was asked for, and the answer is of {known}", members=[known])


def check_own(field: JsonValue, url: str, named: re.Match[str] | None, own: str, what: str) -> None:
    """Raises PlatformError if the URL of a file, stated in ``field``, names another data set than ``own``. ``named`` is
    the match of an id in it, the first group; ``what`` a data set is called there."""
    if named is not None and named[1] != own:
        raise PlatformError(f"{field.shown}: {url[:200]!r} is of another {what} than {own}")


def check_count(stated: JsonValue, listed: int) -> None:
    """Raises PlatformError if a platform lists fewer files than it says there are."""
    count = stated.whole_or_none()
    if count is not None and count > listed:
        raise PlatformError(f"{stated.shown}: there are {count} files, but {listed} are listed")


def paged_files(
    page: str,
    base: str,
    rows: Callable[[JsonValue], JsonValue],
    files: Callable[[JsonValue], Iterable[FilesetManifestFile]],
    following: Callable[[JsonValue], JsonValue],
    total: Callable[[JsonValue], JsonValue],
) -> FileQuestions:
    """Asks for all pages of a list and returns the files of their rows. ``following`` gets the link to the next page,
    null on the last one, ``total`` the number of rows that the last page states. Raises PlatformError for a list
    without end, with fewer rows, or with a file of one page on another, which has taken the place of a third."""
    found: list[FilesetManifestFile] = []
    places: set[tuple[str, str]] = set()
    asked: set[str] = set()
    listed = 0
    while True:
        if page in asked or len(asked) >= _MOST_PAGES or len(found) > MOST_FILES:
            raise PlatformError(f"{page[:300]}: the list of files does not come to an end")
        asked.add(page)
        answer = yield Question(page)
        if answer.status == 410:  # a directory that was removed while the list was read; the data set is there
            raise PlatformHttpError(f"{page[:300]}: HTTP {answer.status}{answer.message}")
        body = answer.json()
        more = list(files(rows(body)))
        there = {(file.path, file.platform_url) for file in more if file.platform_url is not None}
        if not places.isdisjoint(there):
            raise PlatformError(f"{page[:300]}: lists a file again; the list has changed while it was read")
        places |= there
        found += more
        listed += sum(1 for _ in rows(body).items())
        link = following(body)
        if link.is_null:
            check_count(total(body), listed)
            return found
        page = same_origin(link, base)


def manifest_file(
    path: str,
    size: int | None,
    sums: Checksums,
    url: str | None,
    mimetype: str | None = None,
    extra: dict[str, Any] | None = None,
    status: str | None = None,
) -> FilesetManifestFile:
    """Builds the row of a file as its platform describes it. Null values in ``extra`` are dropped."""
    both = {**(extra or {}), "platform_checksum": sums.other}
    kept = {name: value for name, value in both.items() if value is not None}
    return FilesetManifestFile(
        path, size, sums.md5, sums.sha1, sums.sha256, mimetype or None, kept or None, status, url
    )  # fmt: skip
