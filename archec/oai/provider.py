"""The six verbs: from the arguments of a request to the whole answer. No HTTP, no threads, any clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from lxml import etree

from archec.oai.formats import Context, RecordFormat
from archec.oai.index import IndexRow
from archec.oai.items import Item, escaped, identifier, local_of
from archec.oai.lists import read_list, read_sets, resumption
from archec.oai.redif import NAMESPACE as REDIF_NAMESPACE
from archec.oai.repository import Repository
from archec.oai.request import Argument, OaiError, OaiRequest, read_request
from archec.oai.sets import served, set_handle, set_name
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
_COMPRESSION = ("gzip", "deflate", "zstd")

_iso = lru_cache(maxsize=4096)(iso)
"""Records of a page share most of their times."""


@dataclass(frozen=True, slots=True)
class OaiAnswer:
    """An answer with HTTP status 200; ``code`` is the protocol's error code, "" if there is none."""

    body: bytes
    verb: str
    code: str


def answer(repository: Repository, arguments: Sequence[Argument], base_url: str, now: float) -> OaiAnswer:
    """What the repository says, always valid against the protocol's schema.

    ``base_url`` is the address that was requested, used if the configuration names none. Raises an
    :class:`archec.errors.ArchecError` only for a fault of ours, such as an engine that is gone.
    """
    base_url = repository.base_url or base_url
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
            echoed = {}  # section 3.2: then the request element has no attributes
    head = _OPEN.format(style=f"{base_url.rpartition('/')[2]}/style.xsl")
    head += f"<responseDate>{iso(int(now))}</responseDate><request{attributes(echoed)}>{text(base_url)}</request>"
    return OaiAnswer(f"{head}{body}</OAI-PMH>\n".encode(), request.verb if request else "", code)


@dataclass(frozen=True, slots=True)
class _Call:
    """One request to one repository, under a base URL, at a time (in seconds)."""

    repository: Repository
    request: OaiRequest
    base_url: str
    now: float

    @property
    def context(self) -> Context:
        """What formats may ask."""
        return Context(self._landing, self.repository.reader.publisher, lambda name: f"{self.base_url}/{name}")

    def _landing(self, name: str) -> str:
        # What oai-identifier.xsd allows in an identifier but a query string reads otherwise.
        for character, escape in (("%", "%25"), ("&", "%26"), ("+", "%2B"), ("#", "%23"), (";", "%3B")):
            name = name.replace(character, escape)
        return f"{self.base_url}?verb=GetRecord&metadataPrefix=oai_dc&identifier={name}"

    def format(self, prefix: str) -> RecordFormat:
        """A format. Raises :class:`OaiError` if there is none with this prefix."""
        form = self.repository.formats.get(prefix)
        if form is None:
            raise OaiError("cannotDisseminateFormat", f"there is no metadata format {prefix}")
        return form

    def row(self) -> IndexRow:
        """The item that is asked for. Raises :class:`OaiError` if there is none with this identifier."""
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
    if repository.earliest:
        earliest = min(earliest, repository.earliest)  # the operator's date must be a lower bound too
    return (
        f"{element('repositoryName', repository.name)}{element('baseURL', call.base_url)}"
        f"<protocolVersion>2.0</protocolVersion>{elements('adminEmail', repository.emails)}"
        f"<earliestDatestamp>{earliest}</earliestDatestamp><deletedRecord>{repository.deleted}</deletedRecord>"
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
    page = read_sets(repository, call.request, call.now)
    titles = repository.reader.titles({handle for path in page.sets if (handle := set_handle(path))})
    names = {path: set_name(path, titles, repository.collections) for path in page.sets}
    sets = "".join([f"<set><setSpec>{path}</setSpec>{element('setName', name)}</set>" for path, name in names.items()])
    return sets + resumption(repository, page.token, 0, page.cursor)


def _get_record(call: _Call) -> str:
    form = call.format(call.request.prefix)
    row = call.row()
    if row.kind not in form.kinds:
        raise OaiError("cannotDisseminateFormat", f"this item has no record in {call.request.prefix}")
    return _records(call, [row], form, "")[0]


def _list_identifiers(call: _Call) -> str:
    repository = call.repository
    page = read_list(repository, call.request, call.now)
    headers = "".join([_header(repository, row, page.token.set) for row in page.rows])
    token = page.next(len(page.rows), repository.expiry(call.now))
    return headers + resumption(repository, token, page.token.size, page.token.cursor)


def _list_records(call: _Call) -> str:
    repository = call.repository
    page = read_list(repository, call.request, call.now)
    records = _records(call, page.rows, call.format(page.token.prefix), page.token.set)
    token = page.next(len(records), repository.expiry(call.now))
    return "".join(records) + resumption(repository, token, page.token.size, page.token.cursor)


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
    """The records of rows, at least one, and no more once they get too large for a page."""
    repository, context = call.repository, call.context
    records: list[str] = []
    size = 0
    for row, item in repository.reader.items(rows, lambda row: identifier(repository.domain, row.local)):
        head = _header(repository, row, asked)
        if item is None:
            records.append(f"<record>{head}</record>")
        else:
            metadata = form.metadata(item, context)
            if not isinstance(metadata, str):
                metadata = etree.tostring(metadata, encoding="unicode", with_tail=False)
            about = _provenance(item, form, repository.provenance) if repository.provenance else ""
            records.append(f"<record>{head}<metadata>{metadata}</metadata>{about}</record>")
        size += len(records[-1])
        if size > repository.max_bytes:
            break
    return records


def _header(repository: Repository, row: IndexRow, asked: str) -> str:
    """The header of an item. One that has left the set ``asked`` for is deleted there, and names that set alone."""
    status = ' status="deleted"' if row.deleted or row.left else ""
    sets = served((asked,) if row.left else row.sets, repository.trees)
    specs = "".join([f"<setSpec>{path}</setSpec>" for path in sets])
    return (
        f"<header{status}><identifier>{text(identifier(repository.domain, row.local))}</identifier>"
        f"<datestamp>{_iso(row.key.stamp)}</datestamp>{specs}</header>"
    )


def _provenance(item: Item, form: RecordFormat, origin: str) -> str:
    """Where a template came from, and when: it was published by its archive, not by us. Nothing for a file."""
    if item.obi.kind == "fobi":
        return ""
    note = item.obi.notes.get(item.noted)
    harvested = _iso(note.run if note is not None else item.noted)
    altered = "false" if form.namespace == REDIF_NAMESPACE else "true"
    return (
        f'<about><provenance xmlns="{_PROVENANCE}" xmlns:xsi="{XSI}" xsi:schemaLocation="{_PROVENANCE}'
        f' {_PROVENANCE}.xsd"><originDescription harvestDate="{harvested}" altered="{altered}">'
        f"{element('baseURL', origin)}{element('identifier', escaped(item.obi.handle or item.obi.id))}"
        f"<datestamp>{_iso(item.noted)}</datestamp><metadataNamespace>{_REDIF_DOCUMENTATION}</metadataNamespace>"
        "</originDescription></provenance></about>"
    )
