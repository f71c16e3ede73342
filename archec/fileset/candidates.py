"""Candidates: data sets that templates point to, by a File-URL or a DOI, and that were not ingested yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from archec.archive.opening import Archive
from archec.catalogue.model import Ingest, Obi
from archec.errors import CorruptArchive, NotHeld
from archec.fileset.finding import identifier_of
from archec.fileset.lookup import key_of
from archec.fileset.model import IngestRequest
from archec.fileset.platforms.registry import Registry
from archec.ids import FilesetId
from archec.paging import batched
from archec.store.reader import Reader

_DOIS = (
    ("zenodo", re.compile(r"10\.5281/zenodo\.", re.I)),
    ("figshare", re.compile(r"10\.6084/m9\.figshare\.", re.I)),
    ("dataverse", re.compile(r"10\.(?:7910/DVN|18710|34894|5683)/", re.I)),
    ("openicpsr", re.compile(r"10\.3886/E[0-9]", re.I)),
    ("dryad", re.compile(r"10\.5061/dryad", re.I)),
    ("mendeley", re.compile(r"10\.17632/", re.I)),
    ("osf", re.compile(r"10\.17605/OSF\.IO/", re.I)),
    ("4tu", re.compile(r"10\.4121/", re.I)),
)


_DOI = re.compile(rb"^(?:X-)?DOI:[ \t]*(\S+)", re.M | re.I)
_PAGE = 500


class Candidate(NamedTuple):
    """A template that points to a data set: its id, the URL or ``doi:...``, and the name of the platform. As JSON it is
    a request."""

    id: str
    base_url: str
    platform: str


def platform_of(url: str, registry: Registry) -> str:
    """The name of the platform that a data set URL or DOI belongs to; empty if there is none, or if it is disabled."""
    identifier = identifier_of(url)
    if identifier is not None:
        enabled = [helper.name for helper in registry.helpers if helper.config.enabled]
        return next((name for name, pattern in _DOIS if name in enabled and pattern.match(identifier)), "")
    helper = registry.match(IngestRequest(url), None)
    return helper.name if helper is not None else ""


def candidates(archive: Archive, registry: Registry, code: str = "") -> Iterator[Candidate]:
    """Yields the data sets that held templates point to (of the archive ``code``, or of all archives) and that no
    ingest has requested; each once per template."""
    catalogue = archive.catalogue
    known = {one for ingest in catalogue.ingests() for one in _names(ingest, registry)}
    prefix = f"RePEc:{code}:" if code else ""
    tobis = catalogue.tobi_files(prefix, f"RePEc:{code};" if code else "")
    with Reader(archive.layout) as reader:
        for page in batched((tobi for tobi in tobis if tobi.held), _PAGE):
            obis = catalogue.obis("tobi", [tobi.id for tobi in page])
            for tobi in page:
                named = dict.fromkeys((*tobi.files, *(_dois(reader, obis[tobi.id]) if tobi.id in obis else ())))
                for url in named:
                    platform = platform_of(url, registry)
                    if platform and known.isdisjoint((key_of(url), registry.identify(url))):
                        yield Candidate(tobi.id, url, platform)


def _names(ingest: Ingest, registry: Registry) -> Iterator[object]:
    """The names by which the data set of an ingest is recognised."""
    for url in (ingest.base_url, ingest.platform_base_url):
        yield key_of(url)
        yield registry.identify(url) or ""
    yield from dict(ingest.dois)
    yield FilesetId(ingest.platform_name, ingest.platform_domain, ingest.platform_id)


def _dois(reader: Reader, obi: Obi) -> list[str]:
    """The DOIs in the current text of a template; none if the text cannot be read."""
    try:
        with reader.open(obi.bytes_at(obi.history.last or 0), obi.id) as file:
            text = file.read()
    except (NotHeld, CorruptArchive):
        return []
    found = (identifier_of(match[1].decode("utf-8", "replace")) for match in _DOI.finditer(text))
    return [f"doi:{one}" for one in found if one is not None]
