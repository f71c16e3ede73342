"""The repository: what the answers need, put together from the configuration once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from archec.config import Collection, Config
from archec.errors import ConfigError
from archec.oai.dates import parse_moment
from archec.oai.describe import Descriptions, read_descriptions
from archec.oai.formats.base import RecordFormat
from archec.oai.formats.load import load_formats
from archec.oai.index import Index
from archec.oai.model import KINDS, ItemKind
from archec.oai.names import DOMAIN
from archec.oai.sets import trees_for
from archec.oai.source import Source
from archec.oai.token import ENVIRONMENT, Tokens, load_secret

__all__ = ["NOBODY", "NOWHERE", "Repository", "make_repository"]

NOWHERE = "archec.invalid"
"""The domain of identifiers where none is configured: it says by itself that it is not for use."""
NOBODY = f"nobody@{NOWHERE}"


@dataclass(frozen=True, slots=True)
class Repository:
    """See the module's docstring. ``base_url`` is "" where it is told as it was asked."""

    name: str
    domain: str
    base_url: str
    emails: tuple[str, ...]
    earliest: str
    deleted: str
    kinds: tuple[ItemKind, ...]
    trees: tuple[str, ...]
    collections: tuple[Collection, ...]
    formats: Mapping[str, RecordFormat]
    descriptions: Descriptions
    provenance: str
    page: int
    most_bytes: int
    live: float
    tokens: Tokens
    index: Index
    source: Source


def make_repository(
    config: Config, index: Index, source: Source, *, environ: Mapping[str, str] = os.environ
) -> Repository:
    """The repository of a configuration. Raises :class:`ConfigError` for settings that cannot be."""
    oai = config.oai
    base_url = oai.baseURL or (f"{config.server.url}/oai" if config.server.url else "")
    domain = oai.repositoryIdentifier or _domain(base_url)
    if oai.earliestDatestamp and parse_moment(oai.earliestDatestamp) is None:
        raise ConfigError(f"oai.earliestDatestamp: there is no such time as {oai.earliestDatestamp}")
    kinds = tuple(kind for kind in KINDS if oai.items in (kind, "both"))
    secret = load_secret(config.path(oai.secret), environ.get(ENVIRONMENT))
    return Repository(
        name=oai.repositoryName or config.name,
        domain=domain,
        base_url=base_url,
        emails=oai.adminEmail or _contact(config.fetch.contact),
        earliest=oai.earliestDatestamp,
        deleted=oai.deletedRecord,
        kinds=kinds,
        trees=trees_for(oai.sets, kinds),
        collections=oai.collections,
        formats=load_formats(oai.metadataFormats),
        descriptions=read_descriptions(oai, config.base),
        provenance=oai.provenance,
        page=oai.numOfRecords,
        most_bytes=oai.max_page,
        live=oai.liveTime,
        tokens=Tokens(secret, domain),
        index=index,
        source=source,
    )


def _domain(base_url: str) -> str:
    host = urlsplit(base_url).hostname or ""
    return host if DOMAIN.fullmatch(host) else NOWHERE


def _contact(contact: str) -> tuple[str, ...]:
    bare = contact.removeprefix("mailto:").partition("?")[0]
    name, at, host = bare.partition("@")
    return (bare,) if name and at and DOMAIN.fullmatch(host) and not any(c.isspace() for c in bare) else (NOBODY,)
