"""Lists in parts: what a first request or a token asks for, and the token that goes on.

A list is closed by its first request: it ends at that second, and that end is carried in the token. By
the promise of the index nothing can appear in it later; what changes meanwhile leaves it and comes with
the next harvest. So no page shifts, and nothing is given twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from archec.oai.faults import OaiFault
from archec.oai.model import ItemKind, Place, Query, Row
from archec.oai.repository import Repository
from archec.oai.request import Request
from archec.oai.sets import ALIAS, ALIASED, aliased, stored
from archec.oai.token import Token
from archec.oai.xml import attributes
from archec.tist import iso

__all__ = ["ListPage", "SetPage", "read_list", "read_sets", "resumption"]


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list of items.

    ``asked`` is the set as the harvester wrote it; ``rows`` are at most a page; ``more`` whether there
    are others behind them; ``cursor`` how many were given before, ``size`` how many there are in all.
    """

    repository: Repository
    request: Request
    query_prefix: str
    asked: str
    query: Query
    generation: str
    rows: list[Row]
    more: bool
    cursor: int
    size: int

    def next(self, given: int, now: float) -> Token | None:
        """The token that goes on behind the first ``given`` rows; None where the list ends there."""
        if not self.more and given == len(self.rows):
            return None
        last = self.rows[given - 1].place
        expires = int(now + self.repository.live)
        return Token(
            self.request.verb, self.query_prefix, self.asked, self.query.start, self.query.end,
            last.stamp, last.key, self.size, self.cursor + given, expires, self.generation,
        )  # fmt: skip


class SetPage(NamedTuple):
    """A part of the list of sets."""

    sets: list[str]
    token: Token | None
    cursor: int
    size: int


def read_list(repository: Repository, request: Request, now: float) -> ListPage:
    """What a ListRecords or ListIdentifiers request asks for. Raises :class:`OaiFault`."""
    if not request.token:
        return _first(repository, request, now)
    token = _token(repository, request, now)
    form = repository.formats.get(token.prefix)
    generation = repository.index.state().generation
    if form is None or token.generation != generation:
        raise _bad_token()
    query = Query(_kinds(repository, token.prefix), stored(token.set), token.start, token.end)
    after = Place(token.stamp, token.key)
    return _page(repository, request, token.prefix, token.set, query, generation, after, token.cursor, token.size)


def _first(repository: Repository, request: Request, now: float) -> ListPage:
    if request.prefix not in repository.formats:
        raise OaiFault("cannotDisseminateFormat", f"there is no metadata format {request.prefix}")
    if request.set and not repository.trees:
        raise OaiFault("noSetHierarchy", "this repository has no sets")
    end = int(now) if request.end is None else min(request.end, int(now))
    query = Query(_kinds(repository, request.prefix), stored(request.set), request.start, end)
    if (request.set and request.set.partition(":")[0] not in repository.trees) or not query.kinds:
        raise _no_records()
    generation = repository.index.state().generation
    return _page(repository, request, request.prefix, request.set, query, generation, None, 0, None)


def _page(
    repository: Repository,
    request: Request,
    prefix: str,
    asked: str,
    query: Query,
    generation: str,
    after: Place | None,
    cursor: int,
    size: int | None,
) -> ListPage:
    rows = repository.index.page(query, after, repository.page + 1)
    if not rows:
        raise _no_records()
    more = len(rows) > repository.page
    rows = rows[: repository.page]
    if size is None:
        size = max(repository.index.count(query), len(rows) + more) if more else len(rows)
    return ListPage(repository, request, prefix, asked, query, generation, rows, more, cursor, size)


def _kinds(repository: Repository, prefix: str) -> tuple[ItemKind, ...]:
    return tuple(kind for kind in repository.kinds if kind in repository.formats[prefix].kinds)


def read_sets(repository: Repository, request: Request, now: float) -> SetPage:
    """A part of the list of sets, in the order of their setSpecs; raises :class:`OaiFault`."""
    after, cursor = "", 0
    if request.token:
        token = _token(repository, request, now)
        after, cursor = token.key, token.cursor
    found = _sets_after(repository, after, repository.page + 1)
    page = found[: repository.page]
    if not page:
        raise _bad_token() if request.token else OaiFault("noSetHierarchy", "there are no sets yet")
    going_on = None
    if len(found) > len(page):
        expires = int(now + repository.live)
        going_on = Token("ListSets", "", "", 0, 0, 0, page[-1], 0, cursor + len(page), expires, "")
    return SetPage(page, going_on, cursor, 0)


def _sets_after(repository: Repository, after: str, limit: int) -> list[str]:
    """Sets that are served: first those of the tree that has two names, under the second."""
    found: list[str] = []
    head = after.partition(":")[0]
    if ALIAS in repository.trees and head in ("", ALIAS):
        start = ALIASED + after[len(ALIAS) :] if after else ""
        found += [aliased(path) for path in _of_tree(repository, ALIASED, start, limit)]
    for tree in sorted(set(repository.trees) - {ALIAS}):
        if len(found) < limit and head <= tree:
            found += _of_tree(repository, tree, after if head == tree else "", limit - len(found))
    return found


def _of_tree(repository: Repository, tree: str, after: str, limit: int) -> list[str]:
    """The sets of one tree greater than ``after``."""
    found = repository.index.sets(after or tree[:-1], limit + 1)
    return [path for path in found if path == tree or path.startswith(f"{tree}:")][:limit]


def _token(repository: Repository, request: Request, now: float) -> Token:
    token = repository.tokens.read(request.token, now)
    if token is None or token.verb != request.verb:
        raise _bad_token()
    return token


def resumption(repository: Repository, token: Token | None, size: int, cursor: int) -> str:
    """The resumptionToken element: "" for a list that was never cut, an empty one at its end."""
    facts: dict[str, str] = {}
    if token is None:
        if not cursor:
            return ""
        if size:
            facts["completeListSize"] = str(size)
        return f"<resumptionToken{attributes({**facts, 'cursor': str(cursor)})}/>"
    facts["expirationDate"] = iso(token.expires)
    if size:
        facts["completeListSize"] = str(size)
    facts["cursor"] = str(cursor)
    return f"<resumptionToken{attributes(facts)}>{repository.tokens.write(token)}</resumptionToken>"


def _bad_token() -> OaiFault:
    return OaiFault("badResumptionToken", "the resumptionToken is not one of this repository, or has expired")


def _no_records() -> OaiFault:
    return OaiFault("noRecordsMatch", "no record matches what was asked for")
