"""Finds the data set behind a request: resolves a DOI or handle, selects the platform, and asks it for the data set."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import Any
from urllib.parse import quote, unquote

from msgspec.structs import replace

from archec.errors import ArchecError, BadName, storage_errors
from archec.fileset.asking import PAGE_TYPES, is_fault
from archec.fileset.checksums import Checksums
from archec.fileset.context import ReceivedAnswer, RequestFindings, Work
from archec.fileset.fields import JsonValue, clean
from archec.fileset.model import FilesetPlatformItem, IngestRequest, Resource
from archec.fileset.pages import Page
from archec.fileset.platforms.base import (
    FilesetPlatformHelper,
    PlatformAnswer,
    Question,
    host_of,
    item_name,
    manifest_file,
)
from archec.fileset.platforms.checking import checked_item
from archec.fileset.platforms.generic import GenericHelper
from archec.fileset.redaction import public_body, public_item, public_url
from archec.fileset.status import (
    BadRequest,
    FilesetProblem,
    NoPlatformMatch,
    PlatformError,
    PlatformGone,
    PlatformHttpError,
    PlatformNotFound,
    Status,
)
from archec.ids import is_fileset, is_url, parse_fileset
from archec.text.sniff import bare_type

_IDENTIFIER = re.compile(
    r"((?:https?://)?(?:(?:dx\.|www\.)?doi\.org|hdl\.handle\.net)/)?(?:(?:urn:)?(?:doi|hdl):\s*|info:(?:doi|hdl)/)?"
    r"([0-9][0-9.]*(?:/|%2F)\S+)",
    re.I,
)
_MOST_ALIASES = 10
_RESOLVED = (1, 200)
"""``responseCode`` of a DOI or handle that is registered; 200 if it has no values."""
_UNREGISTERED = 100

GONE = 410
"""The status of a tombstone page."""
_IN_MEMORY = 1 << 20
"""Bytes of an answer that are kept in memory, not in a temporary file."""


async def find_item(work: Work, request: IngestRequest, found: RequestFindings) -> FilesetPlatformItem:
    """Finds the platform and the data set of a request, and stores what it learns in ``found``. Raises a FilesetProblem
    if there is no data set."""
    identifier = identifier_of(request.base_url, work.archive.config.fileset.resolver)
    if identifier is not None:
        found.url = await _ask(work, resolved(identifier, work.archive.config.fileset.resolver), found, None)
    else:
        found.url = _known_url(request.base_url, work.registry.helpers)
    if not found.url:
        raise BadRequest(f"{request.base_url[:300]!r} is not a URL, DOI, handle or id of a fileset")
    asked = replace(request, base_url=found.url, identifier=identifier or "")
    found.helper = work.registry.match(asked, None)
    resource: Resource | None = None
    if found.helper is None:
        page = await _landing(work, found.url, only_page=True)
        if page.status == 200:
            if page.is_cut or ((page.body or work.options.direct) and not _is_page(page)):
                return public_item(_direct(work, found, page.url))
            found.landing = page
        elif page.status == GONE:
            found.landing = page
            raise PlatformGone(f"{page.url[:300]}: HTTP {page.status}")
        resource = Resource(page.url, page.status, page.headers, page.body)
        found.helper = work.registry.match(asked, resource)
        if found.helper is None or (found.helper.name == GenericHelper.name and not page.body):
            raise _unmatched(work, page)
    url = found.helper.url_of(asked, resource)
    found.domain, found.platform_id = found.helper.domain(url) or None, found.helper.id_in(url) or None
    questions = found.helper.questions(asked, resource, follow=work.options.follow_concept)
    try:
        return public_item(checked_item(await _ask(work, questions, found, found.helper), found.helper))
    except NoPlatformMatch as problem:
        found.helper = found.domain = found.platform_id = None
        raise NoPlatformMatch(f"{problem.message}; {_tried(work)}") from problem


async def _ask(work: Work, questions: Any, found: RequestFindings, helper: FilesetPlatformHelper | None) -> Any:
    """Sends the questions of a generator and returns its result. The answers are collected in ``found``, except
    temporary errors, which are no states, and without secrets. These are removed before the generator builds rows from
    an answer, which saves memory for large ones. The generator may do without an answer: the error is raised in it.
    """
    try:
        question: Question = _sent(questions, None)
        while True:
            try:
                answer = await work.asker.answer(question, helper)
            except PlatformHttpError as error:
                question = _sent(questions, error)
                continue
            if question.page and found.landing is None and answer.status == 200 and _is_page(answer):
                found.landing = answer
            elif work.downloader is not None and not is_fault(answer.status):
                folder = work.archive.config.work_path
                with storage_errors(folder):
                    body = SpooledTemporaryFile(_IN_MEMORY, dir=str(folder))  # noqa: SIM115 - closed with ``found``
                    body.write(public_body(answer.body))
                found.answers.append(ReceivedAnswer(replace(answer, body=b""), body))
            question = _sent(questions, answer)
    except StopIteration as done:
        return done.value


def _sent(questions: Any, answer: PlatformAnswer | PlatformHttpError | None) -> Question:
    """Sends an answer, or raises why there is none, and returns the next question. Errors of archec that are none of
    the data set, and would end the run, become PlatformError."""
    try:
        step = questions.throw if isinstance(answer, PlatformHttpError) else questions.send
        question: Question = step(answer)
        return question
    except FilesetProblem:
        raise
    except (ArchecError, SystemExit) as error:
        raise PlatformError(str(error) if isinstance(error, ArchecError) else "the helper exits") from error


async def landing_page(work: Work, found: RequestFindings) -> PlatformAnswer | None:
    """Requests the landing page, which may be the tombstone of a data set. Returns None if that fails."""
    with suppress(FilesetProblem):
        page = await _landing(work, found.url)
        return page if page.status in (200, GONE) and not page.is_cut else None
    return None


async def _landing(work: Work, url: str, *, only_page: bool = False) -> PlatformAnswer:
    """Requests a landing page. Raises PlatformHttpError if there is no response."""
    question = Question(url, accept="text/html,*/*", secret=False, page=True, only_page=only_page)
    try:
        return await work.asker.answer(question, None)
    except PlatformHttpError as error:
        if error.status is Status.PLATFORM_HTTP_ERROR:
            raise PlatformHttpError(error.message, status=Status.NO_CAPTURE) from error
        raise


def _unmatched(work: Work, page: PlatformAnswer) -> FilesetProblem:
    """The problem with a landing page that leads to no data set."""
    if page.status != 200:
        return PlatformHttpError(f"{page.url[:300]}: HTTP {page.status}", status=Status.TERMINAL_BAD_STATUS)
    if not page.body:
        return PlatformHttpError(f"{page.url[:300]}: the page is empty", status=Status.EMPTY_BLOB)
    return NoPlatformMatch(f"{page.url[:300]}: not of a known platform; {_tried(work)}")


def _is_page(answer: PlatformAnswer) -> bool:
    kind = bare_type(answer.headers.get("content-type", ""))
    return kind in PAGE_TYPES or (not kind and answer.body[:500].lstrip()[:1] == b"<")


def _tried(work: Work) -> str:
    tried = [helper.name for helper in work.registry.helpers if helper.config.enabled]
    disabled = [helper.name for helper in work.registry.helpers if not helper.config.enabled]
    return f"tried {', '.join(tried)}" + (f"; disabled: {', '.join(disabled)}" if disabled else "")


def _direct(work: Work, found: RequestFindings, url: str) -> FilesetPlatformItem:
    """The item for a URL that is itself a data file; ``url`` is where its redirects end. Raises NoPlatformMatch without
    the option ``direct``."""
    if not work.options.direct:
        raise NoPlatformMatch(f"{found.url[:300]}: is a file, not a page; --direct ingests it; {_tried(work)}")
    path, mark, query = public_url(url).partition("://")[2].partition("?")
    domain, _, name = path.partition("/")
    known = f"{name or '-'}{mark}{query}"
    return FilesetPlatformItem(
        platform_name="direct",
        platform_domain=domain.lower(),
        platform_id=known,
        manifest=[manifest_file(clean(name.rpartition("/")[2] or domain), None, Checksums(), found.url)],
        archiveorg_item_name=item_name(domain, known),
        web_base_url=found.url,
    )


def identifier_of(text: str, resolver: str = "") -> str | None:
    """Returns the DOI or handle in a request; None if it has none. URLs of ``resolver``, the base URL of the configured
    resolver, are treated like those of doi.org."""
    plain = text.strip()
    own = resolver.rstrip("/")
    if own and plain.startswith(own + "/"):
        plain = f"https://hdl.handle.net/{plain[len(own) + 1 :]}"
    found = _IDENTIFIER.fullmatch(plain)
    if found is None:
        return None
    name = re.split("[?#]", found[2])[0] if found[1] else found[2]
    return unquote(name).rstrip("/")


def resolved(identifier: str, resolver: str) -> Generator[Question, PlatformAnswer, str]:
    """Resolves a DOI or handle to its first URL (by index), to the first of its locations, or to what it is an alias
    of. Raises PlatformNotFound if it is not registered or has no URL."""
    asked: list[str] = []
    name = identifier
    while name not in asked and len(asked) < _MOST_ALIASES:
        asked.append(name)
        url = f"{resolver.rstrip('/')}/api/handles/{quote(name, safe='/.-_~:;()')}"
        answer = yield Question(url, secret=False)
        if answer.status not in (200, 404):  # none of which is about the data set
            raise PlatformHttpError(f"{url}: HTTP {answer.status}{answer.message}")
        body = answer.json() if answer.status == 200 else JsonValue({"responseCode": _UNREGISTERED})
        code = body["responseCode"]
        if code.raw == _UNREGISTERED:
            raise PlatformNotFound(f"{name} is not registered")
        if code.raw not in (None, *_RESOLVED):
            raise PlatformHttpError(f"{url}: {code.shown} {str(code.raw)[:60]}{answer.message}")
        values: dict[str | None, list[JsonValue]] = {}
        for value in sorted(body["values"].items(), key=lambda value: value["index"].whole_or_none() or 0):
            values.setdefault(value["type"].text_or_none(), []).append(value)
        kind = next((kind for kind in ("URL", "HS_ALIAS", "10320/loc") if kind in values), None)
        if kind is None:
            break
        fields = [value["data"]["value"] for value in values[kind]]
        texts = [field.text().strip() for field in fields]
        if kind == "HS_ALIAS":
            name = texts[0]
            continue
        urls = texts if kind == "URL" else [Page(text.encode()).location() for text in texts]
        found = next((one for one in urls if is_url(one) and host_of(one)), None)
        if found is None:
            raise PlatformError(f"{fields[0].shown}: {texts[0][:200]!r} is not a URL")
        return found
    raise PlatformNotFound(f"{identifier} has no URL")


def url_of(fileset: str, helpers: Sequence[FilesetPlatformHelper]) -> str:
    """The URL of the data set with the id of a fileset. Raises BadRequest if it cannot be derived for its platform."""
    try:
        found = parse_fileset(fileset)
    except BadName as error:
        raise BadRequest(error.message) from error
    pages = next((helper.pages for helper in helpers if helper.name == found.platform), None)
    if pages is None:
        raise BadRequest(f"{fileset[:200]}: ask for a data set of {found.platform} by its URL")
    scheme = "http" if re.match(r"(?:127\.|localhost)", found.domain) else "https"
    safe = ":/?=&" if found.platform == GenericHelper.name else ":/"
    path = pages[bool(found.version)].format(work=quote(found.work, safe=safe), version=quote(found.version))
    return f"{scheme}://{found.domain}{path}"


def _known_url(text: str, helpers: Sequence[FilesetPlatformHelper]) -> str:
    """The URL of a request by URL or fileset id; empty if it is neither."""
    plain = text.strip()
    if is_fileset(plain):
        return url_of(plain, helpers)
    return plain if is_url(plain) and host_of(plain) else ""
