"""The six verbs: computes the response to the arguments of a request. No HTTP, no threads, any clock.

A list has pages. Its end is set to the second of its first request, and the resumption token carries that end. By the
promise of the index nothing can be added to the list later; an item that changes meanwhile leaves it and is in the next
harvest. So pages never shift, and no item is listed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from lxml import etree

from archec.oai.formats import Context, RecordFormat
from archec.oai.index import IndexRow, ListQuery, SortKey
from archec.oai.items import Item, escaped, identifier, local_of
from archec.oai.redif import NAMESPACE as REDIF_NAMESPACE
from archec.oai.repository import Repository
from archec.oai.request import Argument, OaiError, OaiRequest, read_request
from archec.oai.sets import ALIAS, ARCHIVE, aliased, served, set_handle, set_name, stored
from archec.oai.token import ResumptionToken
from archec.oai.xml import XSI, attributes, element, elements, text
from archec.tist import iso

_NAMESPACE = "http://www.openarchives.org/OAI/2.0/"
_OPEN = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    f'<?xml-stylesheet type="text/xsl" href="{{style}}"?>\n<OAI-PMH xmlns="{_NAMESPACE}"'
    f' xmlns:xsi="{XSI}" xsi:schemaLocation="{_NAMESPACE} {_NAMESPACE}OAI-PMH.xsd">'
)
_PROVENANCE = "http://www.openarchives.org/OAI/2.0/provenance"
_REDIF_DOCUMENTATION = "http://openlib.org/acmes/root/docu/redif_1.html"
_QUERY_SAFE = "!*'()/?:@=$,"
"""Characters that mean nothing in a query string, of those that oai-identifier.xsd allows."""
_COMPRESSION = ("gzip", "deflate", "zstd")

_iso = lru_cache(maxsize=4096)(iso)
"""Cached, because records of a page share most of their times."""


@dataclass(frozen=True, slots=True)
class OaiAnswer:
    """A response with HTTP status 200; ``code`` is the protocol's error code, "" if there is none."""

    body: bytes
    verb: str
    code: str


def answer(repository: Repository, arguments: Sequence[Argument], base_url: str, now: float) -> OaiAnswer:
    """The response of the repository, which is always valid against the protocol's schema.

    Raises an :class:`archec.errors.ArchecError` only for a local error, such as an engine that is unavailable.
    """
    request: OaiRequest | None = None
    echoed: Mapping[str, str] = {}
    code = ""
    try:
        request = read_request(arguments)
        echoed = request.arguments
        content = _VERBS[request.verb](_Call(repository, request, base_url, now))
        body = f"<{request.verb}>{content}</{request.verb}>"
    except OaiError as error:
        code = error.code
        body = f'<error code="{code}">{text(error.message)}</error>'
        if code in ("badVerb", "badArgument"):
            echoed = {}  # section 3.2: the request element has no attributes in these cases
    head = _OPEN.format(style=f"{base_url.rpartition('/')[2]}/style.xsl")
    head += f"<responseDate>{iso(int(now))}</responseDate><request{attributes(echoed)}>{text(base_url)}</request>"
    return OaiAnswer(f"{head}{body}</OAI-PMH>\n".encode(), request.verb if request else "", code)


@dataclass(frozen=True, slots=True)
class _Call:
    """One request to one repository, with its base URL and time (in seconds)."""

    repository: Repository
    request: OaiRequest
    base_url: str
    now: float

    @property
    def context(self) -> Context:
        return Context(self._landing, self.repository.reader.publisher, lambda name: f"{self.base_url}/{name}")

    def _landing(self, name: str) -> str:
        return f"{self.base_url}?verb=GetRecord&metadataPrefix=oai_dc&identifier={quote(name, safe=_QUERY_SAFE)}"

    def format(self, prefix: str) -> RecordFormat:
        """The format with this prefix. Raises :class:`OaiError` if there is none."""
        form = self.repository.formats.get(prefix)
        if form is None:
            raise OaiError("cannotDisseminateFormat", f"there is no metadata format {prefix}")
        return form

    def row(self) -> IndexRow:
        """The requested item. Raises :class:`OaiError` if there is none with this identifier."""
        local = local_of(self.repository.domain, self.request.identifier)
        row = self.repository.index.find(local) if local is not None else None
        if row is None or row.kind not in self.repository.kinds:
            raise OaiError("idDoesNotExist", "there is no item with this identifier")
        return row


# -- verbs ----------------------------------------------------------------------------------------


def _identify(call: _Call) -> str:
    repository = call.repository
    first = repository.index.earliest()
    if first is None:
        first = repository.reader.earliest()
    earliest = iso(int(call.now) if first is None else min(first, int(call.now)))
    if repository.settings.earliestDatestamp:
        earliest = min(earliest, repository.settings.earliestDatestamp)  # the operator's date must be a lower bound
    return (
        f"{element('repositoryName', repository.name)}{element('baseURL', call.base_url)}"
        f"<protocolVersion>2.0</protocolVersion>{elements('adminEmail', repository.emails)}"
        f"<earliestDatestamp>{earliest}</earliestDatestamp><deletedRecord>{repository.settings.deletedRecord}</deletedRecord>"
        f"<granularity>YYYY-MM-DDThh:mm:ssZ</granularity>{elements('compression', _COMPRESSION)}"
        f"{repository.description}"
    )


def _list_metadata_formats(call: _Call) -> str:
    formats = call.repository.formats
    if call.request.identifier:
        row = call.row()
        formats = {prefix: form for prefix, form in formats.items() if row.kind in form.kinds}
        if not formats:
            raise OaiError("noMetadataFormats", "there is no metadata format for this item")
    return "".join(
        [
            f"<metadataFormat><metadataPrefix>{prefix}</metadataPrefix>"
            f"{element('schema', form.schema_url(call.context))}"
            f"{element('metadataNamespace', form.namespace)}</metadataFormat>"
            for prefix, form in formats.items()
        ]
    )


def _list_sets(call: _Call) -> str:
    repository = call.repository
    if not repository.trees:
        raise OaiError("noSetHierarchy", "this repository has no sets")
    begin = _resumed(call) if call.request.token else ResumptionToken("ListSets")
    most = repository.settings.numOfRecords
    found = _sets_after(repository, begin.key, most + 1)
    page = found[:most]
    if not page:
        raise _bad_token() if call.request.token else OaiError("noSetHierarchy", "there are no sets yet")
    token = None
    if len(found) > len(page):
        token = begin._replace(key=page[-1], cursor=begin.cursor + len(page), expires=repository.expiry(call.now))
    titles = repository.reader.titles({handle for path in page if (handle := set_handle(path))})
    names = {path: set_name(path, titles, repository.settings.collections) for path in page}
    sets = "".join([f"<set><setSpec>{path}</setSpec>{element('setName', name)}</set>" for path, name in names.items()])
    return sets + resumption(repository, token, 0, begin.cursor)


def _get_record(call: _Call) -> str:
    form = call.format(call.request.prefix)
    row = call.row()
    if row.kind not in form.kinds:
        raise OaiError("cannotDisseminateFormat", f"this item has no record in {call.request.prefix}")
    return _records(call, [row], form, "")[0]


def _list_identifiers(call: _Call) -> str:
    page = read_list(call)
    headers = "".join([_header(call.repository, row, page.token.set) for row in page.rows])
    return headers + _rest(call, page, len(page.rows))


def _list_records(call: _Call) -> str:
    page = read_list(call)
    records = _records(call, page.rows, call.format(page.token.prefix), page.token.set)
    return "".join(records) + _rest(call, page, len(records))


_VERBS: Mapping[str, Callable[[_Call], str]] = {
    "GetRecord": _get_record,
    "Identify": _identify,
    "ListIdentifiers": _list_identifiers,
    "ListMetadataFormats": _list_metadata_formats,
    "ListRecords": _list_records,
    "ListSets": _list_sets,
}


# -- records --------------------------------------------------------------------------------------


def _records(call: _Call, rows: Sequence[IndexRow], form: RecordFormat, asked: str) -> list[str]:
    """The records of rows: at least one, and no more once they exceed the maximum size of a page."""
    repository, context = call.repository, call.context
    origin = repository.settings.provenance
    records: list[str] = []
    size, seen = 0, repository.index.state().seen
    repository.reader.require(seen)
    for row, item in repository.reader.items(rows, repository.domain):
        head = _header(repository, row, asked)
        if item is None:
            records.append(f"<record>{head}</record>")
        else:
            metadata = form.metadata(item, context)
            if not isinstance(metadata, str):
                metadata = etree.tostring(metadata, encoding="unicode", with_tail=False)
            about = _provenance(item, form, origin) if origin else ""
            records.append(f"<record>{head}<metadata>{metadata}</metadata>{about}</record>")
        size += len(records[-1])
        if size > repository.settings.max_page:
            break
    repository.reader.require(seen)  # again: a rebuild may have begun meanwhile
    return records


def _header(repository: Repository, row: IndexRow, asked: str) -> str:
    """The header of an item. If the item has left the set ``asked`` for, it is deleted, and names only that set."""
    status = ' status="deleted"' if row.deleted or row.left else ""
    sets = served((asked,) if row.left else row.sets, repository.trees)
    specs = "".join([f"<setSpec>{path}</setSpec>" for path in sets])
    return (
        f"<header{status}><identifier>{text(identifier(repository.domain, row.local))}</identifier>"
        f"<datestamp>{_iso(row.key.stamp)}</datestamp>{specs}</header>"
    )


def _provenance(item: Item, form: RecordFormat, origin: str) -> str:
    """The origin of a template, which was published by its archive, not by us: when it was noted and last seen. Empty
    for a file."""
    if item.obi.kind == "fobi":
        return ""
    harvested = _iso(item.last_seen)
    altered = "false" if form.namespace == REDIF_NAMESPACE and item.readable else "true"
    return (
        f'<about><provenance xmlns="{_PROVENANCE}" xmlns:xsi="{XSI}" xsi:schemaLocation="{_PROVENANCE}'
        f' {_PROVENANCE}.xsd"><originDescription harvestDate="{harvested}" altered="{altered}">'
        f"{element('baseURL', origin)}{element('identifier', escaped(item.obi.handle or item.obi.id))}"
        f"<datestamp>{_iso(item.noted)}</datestamp><metadataNamespace>{_REDIF_DOCUMENTATION}</metadataNamespace>"
        "</originDescription></provenance></about>"
    )


# -- lists in pages -------------------------------------------------------------------------------


class ListPage(NamedTuple):
    """The page of a list of items at ``token``. ``more``: others follow."""

    token: ResumptionToken
    rows: list[IndexRow]
    more: bool


def read_list(call: _Call) -> ListPage:
    """The page for a ListRecords or ListIdentifiers request. Raises :class:`OaiError`."""
    repository = call.repository
    generation = repository.index.state().generation
    token = _resumed(call) if call.request.token else _begun(call, generation)
    form = repository.formats.get(token.prefix)
    if form is None or token.generation != generation:
        raise _bad_token()
    kinds = tuple(kind for kind in repository.kinds if kind in form.kinds)
    query = ListQuery(kinds, stored(token.set), token.start, token.end)
    after = SortKey(token.stamp, token.key) if token.cursor else None
    rows = repository.index.page(query, after, repository.settings.numOfRecords + 1)
    if not rows:
        raise _no_records()
    more = len(rows) > repository.settings.numOfRecords
    if not token.cursor:
        token = token._replace(size=max(repository.index.count(query), len(rows)) if more else len(rows))
    return ListPage(token, rows[: repository.settings.numOfRecords], more)


def _rest(call: _Call, page: ListPage, given: int) -> str:
    """The resumptionToken element after the first ``given`` rows of a page."""
    token = None
    if page.more or given < len(page.rows):
        last, cursor = page.rows[given - 1].key, page.token.cursor + given
        expires = call.repository.expiry(call.now)
        token = page.token._replace(stamp=last.stamp, key=last.tie, cursor=cursor, expires=expires)
    return resumption(call.repository, token, page.token.size, page.token.cursor)


def _begun(call: _Call, generation: str) -> ResumptionToken:
    """The token for the first page of a list."""
    request, trees, now = call.request, call.repository.trees, int(call.now)
    call.format(request.prefix)
    if request.set and not trees:
        raise OaiError("noSetHierarchy", "this repository has no sets")
    if request.set and request.set.partition(":")[0] not in trees:
        raise _no_records()
    end = now if request.end is None else min(request.end, now)
    return ResumptionToken(request.verb, request.prefix, request.set, request.start, end, generation=generation)


def _resumed(call: _Call) -> ResumptionToken:
    token = call.repository.tokens.read(call.request.token, call.now)
    if token is None or token.verb != call.request.verb:
        raise _bad_token()
    return token


def _sets_after(repository: Repository, after: str, limit: int) -> list[str]:
    """At most ``limit`` served sets greater than ``after``."""
    found: list[str] = []
    tree_of_after = after.partition(":")[0]
    for tree in sorted(repository.trees):
        if len(found) < limit and tree_of_after <= tree:
            name = ARCHIVE if tree == ALIAS else tree
            # The name of a tree without its last letter sorts before all sets in the tree.
            start = name + after[len(tree) :] if tree == tree_of_after else name[:-1]
            paths = repository.index.sets(start, limit - len(found) + 1)
            paths = [path for path in paths if path == name or path.startswith(f"{name}:")][: limit - len(found)]
            found += [aliased(path) for path in paths] if tree == ALIAS else paths
    return found


def resumption(repository: Repository, token: ResumptionToken | None, size: int, cursor: int) -> str:
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
