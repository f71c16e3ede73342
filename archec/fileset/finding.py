"""Finding: from what was asked for to a platform, and to what it says."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from archec.fileset.checksums import Checksums
from archec.fileset.fields import clean
from archec.fileset.model import FilesetPlatformItem, IngestRequest, Resource
from archec.fileset.platforms.base import (
    FilesetPlatformHelper,
    PlatformAnswer,
    Question,
    item_name,
    manifest_file,
    public_url,
)
from archec.fileset.problems import (
    FilesetProblem,
    NoPlatformMatch,
)
from archec.fileset.resolve import identifier_of, known_url, resolved
from archec.fileset.work import Found, Work
from archec.text.sniff import bare_type

_PAGE_TYPES = ("text/html", "application/xhtml+xml")


async def find_item(work: Work, request: IngestRequest, found: Found) -> None:
    """The platform and what it says. Raises a FilesetProblem where there is nothing to be had."""
    identifier = identifier_of(request.base_url, work.archive.config.fileset.resolver)
    if identifier is not None:
        found.url = await _asked(work, resolved(identifier, work.archive.config.fileset.resolver), found, None)
    else:
        found.url = known_url(request.base_url) or ""
    if not found.url:
        raise NoPlatformMatch(f"{request.base_url[:300]!r} is no URL, DOI, handle or id of a fileset")
    asked = replace(request, base_url=found.url)
    found.helper = work.registry.match(asked, None)
    resource: Resource | None = None
    if found.helper is None:
        found.landing = await landing_page(work, found)
        if found.landing is None:
            raise NoPlatformMatch(f"{found.url[:300]}: of no platform, and the page cannot be had")
        if not _is_page(found.landing):
            found.item = _direct(work, found)
            return
        resource = Resource(found.landing.url, found.landing.status, found.landing.headers, found.landing.body)
        found.helper = work.registry.match(asked, resource)
    if found.helper is None:
        raise NoPlatformMatch(f"{found.url[:300]}: of no platform; {_tried(work)}")
    questions = found.helper.questions(asked, resource, follow=work.options.follow_concept)
    found.item = await _asked(work, questions, found, found.helper)


async def _asked(work: Work, questions: Any, found: Found, helper: FilesetPlatformHelper | None) -> Any:
    """What a generator of questions returns; its answers are kept in ``found``."""
    try:
        question: Question = next(questions)
        while True:
            answer = await work.asker.answer(question, helper)
            found.answers.append(answer)
            _set_landing(found, question, answer)
            question = questions.send(answer)
    except StopIteration as done:
        return done.value


def _set_landing(found: Found, question: Question, answer: PlatformAnswer) -> None:
    if question.page and found.landing is None and answer.status == 200 and _is_page(answer):
        found.landing = answer


async def landing_page(work: Work, found: Found) -> PlatformAnswer | None:
    """The landing page; None where it cannot be had."""
    with suppress(FilesetProblem):
        answer = await work.asker.answer(Question(found.url, accept="text/html,*/*", secret=False, page=True), None)
        if answer.status == 200:
            return answer
    return None


def _is_page(answer: PlatformAnswer) -> bool:
    kind = bare_type(answer.headers.get("content-type", ""))
    return kind in _PAGE_TYPES or (not kind and answer.body[:500].lstrip()[:1] == b"<")


def _tried(work: Work) -> str:
    return "tried " + ", ".join(helper.name for helper in work.registry.helpers if helper.config.enabled)


def _direct(work: Work, found: Found) -> FilesetPlatformItem:
    """The item that is a data file itself. Raises NoPlatformMatch where that was not asked for."""
    landing = found.landing
    url = landing.url if landing is not None else found.url
    if not work.options.direct:
        raise NoPlatformMatch(f"{found.url[:300]}: is a file, not a page; --direct ingests it; {_tried(work)}")
    found.landing = None
    path, _, query = public_url(url).partition("://")[2].partition("?")
    domain, _, work_id = path.partition("/")
    name = work_id.rpartition("/")[2] or domain
    return FilesetPlatformItem(
        platform_name="direct",
        platform_domain=domain.lower(),
        platform_id=work_id or "-",
        work_id=(work_id or "-") + (f"?{query}" if query else ""),
        manifest=[manifest_file(clean(name), None, Checksums(), found.url)],
        archiveorg_item_name=item_name(domain, name),
        web_base_url=found.url,
    )
