"""Lists in pages: which part a request asks for, and the token that continues it.

A list is closed by its first request: it ends at that second, and that end is carried in the token. By the promise
of the index nothing can appear in it later; what changes meanwhile leaves it and comes with the next harvest. So no
page shifts, and nothing is given twice.
"""

from __future__ import annotations

from typing import NamedTuple

from archec.oai.index import IndexRow, ListQuery, SortKey
from archec.oai.repository import Repository
from archec.oai.request import OaiError, OaiRequest
from archec.oai.sets import ALIAS, ARCHIVE, aliased, stored
from archec.oai.token import Token
from archec.oai.xml import attributes
from archec.tist import iso


class ListPage(NamedTuple):
    """One page of a list of items: that which ``token`` asks for. ``more``: others follow."""

    token: Token
    rows: list[IndexRow]
    more: bool

    def next(self, given: int, expires: int) -> Token | None:
        """The token that continues behind the first ``given`` rows; None if the list ends there."""
        if not self.more and given == len(self.rows):
            return None
        last = self.rows[given - 1].key
        cursor = self.token.cursor + given
        return self.token._replace(stamp=last.stamp, key=last.tie, cursor=cursor, expires=expires)


class SetPage(NamedTuple):
    """One page of the list of sets, the token that continues it, and how many sets were given before."""

    sets: list[str]
    token: Token | None
    cursor: int


def read_list(repository: Repository, request: OaiRequest, now: float) -> ListPage:
    """The page that a ListRecords or ListIdentifiers request asks for. Raises :class:`OaiError`."""
    generation = repository.index.state().generation
    if request.token:
        token = _resumed(repository, request, now)
    else:
        token = _begun(repository, request, now, generation)
    form = repository.formats.get(token.prefix)
    if form is None or token.generation != generation:
        raise _bad_token()
    kinds = tuple(kind for kind in repository.kinds if kind in form.kinds)
    query = ListQuery(kinds, stored(token.set), token.start, token.end)
    after = SortKey(token.stamp, token.key) if token.cursor else None
    rows = repository.index.page(query, after, repository.page + 1)
    if not rows:
        raise _no_records()
    more = len(rows) > repository.page
    if not token.cursor:
        token = token._replace(size=max(repository.index.count(query), len(rows)) if more else len(rows))
    return ListPage(token, rows[: repository.page], more)


def _begun(repository: Repository, request: OaiRequest, now: float, generation: str) -> Token:
    """What a token for the first page of a list would say."""
    if request.prefix not in repository.formats:
        raise OaiError("cannotDisseminateFormat", f"there is no metadata format {request.prefix}")
    if request.set and not repository.trees:
        raise OaiError("noSetHierarchy", "this repository has no sets")
    if request.set and request.set.partition(":")[0] not in repository.trees:
        raise _no_records()
    end = int(now) if request.end is None else min(request.end, int(now))
    return Token(
        request.verb, request.prefix, request.set, request.start, end,
        stamp=0, key="", size=0, cursor=0, expires=0, generation=generation,
    )  # fmt: skip


def _resumed(repository: Repository, request: OaiRequest, now: float) -> Token:
    token = repository.tokens.read(request.token, now)
    if token is None or token.verb != request.verb:
        raise _bad_token()
    return token


def read_sets(repository: Repository, request: OaiRequest, now: float) -> SetPage:
    """A page of the list of sets, in the order of their setSpecs. Raises :class:`OaiError`."""
    after, cursor = "", 0
    if request.token:
        token = _resumed(repository, request, now)
        after, cursor = token.key, token.cursor
    found = _sets_after(repository, after, repository.page + 1)
    page = found[: repository.page]
    if not page:
        raise _bad_token() if request.token else OaiError("noSetHierarchy", "there are no sets yet")
    if len(found) == len(page):
        return SetPage(page, None, cursor)
    token = Token(
        "ListSets", prefix="", set="", start=0, end=0, stamp=0, key=page[-1], size=0, cursor=cursor + len(page),
        expires=repository.expiry(now), generation="",
    )  # fmt: skip
    return SetPage(page, token, cursor)


def _sets_after(repository: Repository, after: str, limit: int) -> list[str]:
    """At most ``limit`` sets that are served and greater than ``after``."""
    found: list[str] = []
    tree_of_after = after.partition(":")[0]
    for tree in sorted(repository.trees):
        if len(found) < limit and tree_of_after <= tree:
            name = ARCHIVE if tree == ALIAS else tree
            # Without its last letter the name of a tree is less than all sets in it.
            start = name + after[len(tree) :] if tree == tree_of_after else name[:-1]
            paths = repository.index.sets(start, limit - len(found) + 1)
            paths = [path for path in paths if path == name or path.startswith(f"{name}:")][: limit - len(found)]
            found += [aliased(path) for path in paths] if tree == ALIAS else paths
    return found


def resumption(repository: Repository, token: Token | None, size: int, cursor: int) -> str:
    """The resumptionToken element: "" for a list of one page, an empty one at the end of a longer list."""
    if token is None and not cursor:
        return ""
    facts: dict[str, str] = {}
    if token is not None:
        facts["expirationDate"] = iso(token.expires)
    if size:
        facts["completeListSize"] = str(size)
    facts["cursor"] = str(cursor)
    text = repository.tokens.write(token) if token is not None else ""
    return f"<resumptionToken{attributes(facts)}>{text}</resumptionToken>"


def _bad_token() -> OaiError:
    return OaiError("badResumptionToken", "the resumptionToken is not one of this repository, or has expired")


def _no_records() -> OaiError:
    return OaiError("noRecordsMatch", "no record matches the request")
