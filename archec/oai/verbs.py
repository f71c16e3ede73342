"""The six verbs: each gives the element of its answer, or raises :class:`OaiFault`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from archec.oai.describe import describe
from archec.oai.faults import OaiFault
from archec.oai.formats.base import Context, RecordFormat
from archec.oai.lists import read_list, read_sets, resumption
from archec.oai.model import Row
from archec.oai.names import identifier, local_of
from archec.oai.records import header, record
from archec.oai.repository import Repository
from archec.oai.request import Request
from archec.oai.setnames import set_names
from archec.oai.xml import element, elements
from archec.tist import iso

__all__ = ["VERBS", "Asked"]

_COMPRESSION = ("gzip", "deflate", "zstd")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: of which repository, under which base URL, at which time (seconds)."""

    repository: Repository
    request: Request
    base_url: str
    now: float

    @property
    def context(self) -> Context:
        """What formats may ask."""
        base = self.base_url

        def landing(name: str) -> str:
            escaped = name.replace("%", "%25").replace("&", "%26").replace("+", "%2B").replace("#", "%23")
            return f"{base}?verb=GetRecord&metadataPrefix=oai_dc&identifier={escaped.replace(';', '%3B')}"

        return Context(landing, self.repository.source.publisher, lambda name: f"{base}/{name}")


def identify(asked: Asked) -> str:
    """Identify."""
    repository = asked.repository
    first = repository.index.earliest()
    first = repository.source.earliest() if first is None else first
    earliest = iso(int(asked.now) if first is None else min(first, int(asked.now)))
    if repository.earliest:
        earliest = min(earliest, repository.earliest)  # what the operator says must be a lower bound too
    return (
        f"{element('repositoryName', repository.name)}{element('baseURL', asked.base_url)}"
        f"<protocolVersion>2.0</protocolVersion>{elements('adminEmail', repository.emails)}"
        f"<earliestDatestamp>{earliest}</earliestDatestamp><deletedRecord>{repository.deleted}</deletedRecord>"
        f"<granularity>YYYY-MM-DDThh:mm:ssZ</granularity>{elements('compression', _COMPRESSION)}"
        f"{describe(repository.descriptions, repository.domain)}"
    )


def list_metadata_formats(asked: Asked) -> str:
    """ListMetadataFormats, of the repository or of one item."""
    repository = asked.repository
    formats = repository.formats
    if asked.request.identifier:
        row = _item(asked)
        formats = {prefix: form for prefix, form in formats.items() if row.kind in form.kinds}
        if not formats:
            raise OaiFault("noMetadataFormats", "there is no metadata format for this item")
    return "".join(
        [
            f"<metadataFormat><metadataPrefix>{prefix}</metadataPrefix>"
            f"{element('schema', form.schema_url(asked.context))}"
            f"{element('metadataNamespace', form.namespace)}</metadataFormat>"
            for prefix, form in formats.items()
        ]
    )


def list_sets(asked: Asked) -> str:
    """ListSets."""
    repository = asked.repository
    if not repository.trees:
        raise OaiFault("noSetHierarchy", "this repository has no sets")
    page = read_sets(repository, asked.request, asked.now)
    names = set_names(page.sets, repository)
    sets = "".join([f"<set><setSpec>{path}</setSpec>{element('setName', names[path])}</set>" for path in page.sets])
    return sets + resumption(repository, page.token, page.size, page.cursor)


def get_record(asked: Asked) -> str:
    """GetRecord."""
    form = _format(asked, asked.request.prefix)
    row = _item(asked)
    if row.kind not in form.kinds:
        raise OaiFault("cannotDisseminateFormat", f"this item has no record in {asked.request.prefix}")
    return _records(asked, [row], form, "").text


def list_identifiers(asked: Asked) -> str:
    """ListIdentifiers."""
    repository = asked.repository
    page = read_list(repository, asked.request, asked.now)
    trees = frozenset(repository.trees)
    headers = "".join([header(row, repository.domain, trees, page.asked) for row in page.rows])
    return headers + resumption(repository, page.next(len(page.rows), asked.now), page.size, page.cursor)


def list_records(asked: Asked) -> str:
    """ListRecords."""
    repository = asked.repository
    page = read_list(repository, asked.request, asked.now)
    part = _records(asked, page.rows, _format(asked, page.query_prefix), page.asked)
    return part.text + resumption(repository, page.next(part.count, asked.now), page.size, page.cursor)


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    count: int


def _records(asked: Asked, rows: Sequence[Row], form: RecordFormat, of_set: str) -> _Part:
    """Records of rows, at least one, and no more when they get too large."""
    repository, context = asked.repository, asked.context
    domain, trees, origin = repository.domain, frozenset(repository.trees), repository.provenance
    made: list[str] = []
    size = 0
    for row, item in repository.source.items(rows, lambda row: identifier(domain, row.local)):
        made.append(record(header(row, domain, trees, of_set), item, form, context, origin))
        size += len(made[-1])
        if size > repository.most_bytes:
            break
    return _Part("".join(made), len(made))


def _format(asked: Asked, prefix: str) -> RecordFormat:
    form = asked.repository.formats.get(prefix)
    if form is None:
        raise OaiFault("cannotDisseminateFormat", f"there is no metadata format {prefix}")
    return form


def _item(asked: Asked) -> Row:
    repository = asked.repository
    local = local_of(repository.domain, asked.request.identifier)
    row = repository.index.find(local) if local is not None else None
    if row is None or row.kind not in repository.kinds:
        raise OaiFault("idDoesNotExist", "there is no item with this identifier")
    return row


VERBS: Mapping[str, Callable[[Asked], str]] = {
    "GetRecord": get_record,
    "Identify": identify,
    "ListIdentifiers": list_identifiers,
    "ListMetadataFormats": list_metadata_formats,
    "ListRecords": list_records,
    "ListSets": list_sets,
}
