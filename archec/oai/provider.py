"""From the arguments of a request to the whole answer: no HTTP, no threads, any clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from archec.oai.faults import BARE, OaiFault
from archec.oai.repository import Repository
from archec.oai.request import Pair, Request, read_request
from archec.oai.verbs import VERBS, Asked
from archec.oai.xml import DECLARATION, attributes, text
from archec.tist import iso

__all__ = ["Answer", "answer"]

_NAMESPACE = "http://www.openarchives.org/OAI/2.0/"
_OPEN = (
    f'{DECLARATION}<?xml-stylesheet type="text/xsl" href="{{style}}"?>\n<OAI-PMH xmlns="{_NAMESPACE}"'
    ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    f' xsi:schemaLocation="{_NAMESPACE} {_NAMESPACE}OAI-PMH.xsd">'
)


class Answer(NamedTuple):
    """An answer of status 200; ``code`` is the protocol's error code, "" where there is none."""

    body: bytes
    verb: str
    code: str


def answer(repository: Repository, pairs: Sequence[Pair], base_url: str, now: float) -> Answer:
    """What the repository says, always valid against the protocol's schema.

    ``base_url`` is the address that was asked, for where the configuration names none. Raises an
    :class:`archec.errors.ArchecError` only for a fault of ours: an engine that is gone, say.
    """
    base_url = repository.base_url or base_url
    request: Request | None = None
    arguments: dict[str, str] = {}
    code = ""
    try:
        request = read_request(pairs)
        arguments = dict(request.arguments)
        body = VERBS[request.verb](Asked(repository, request, base_url, now))
        body = f"<{request.verb}>{body}</{request.verb}>"
    except OaiFault as fault:
        code = fault.code
        body = f'<error code="{code}">{text(fault.message)}</error>'
        if fault.code in BARE:
            arguments = {}
    head = _OPEN.format(style=f"{base_url.rpartition('/')[2]}/style.xsl")
    told = f"<responseDate>{iso(int(now))}</responseDate><request{attributes(arguments)}>{text(base_url)}</request>"
    return Answer(f"{head}{told}{body}</OAI-PMH>\n".encode(), request.verb if request else "", code)
