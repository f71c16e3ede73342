"""The repository: everything that responses need, created once from the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urlsplit

from lxml import etree

from archec.catalogue.model import Kind
from archec.config import Config, FormatConfig, OaiConfig
from archec.errors import ConfigError
from archec.files import read_file
from archec.oai.amf import Amf
from archec.oai.dc import DublinCore
from archec.oai.formats import RecordFormat
from archec.oai.index import ITEM_KINDS, Index
from archec.oai.index_sqlite import SQLiteIndex
from archec.oai.items import DOMAIN, ItemReader, identifier
from archec.oai.redif import Redif
from archec.oai.request import parse_date
from archec.oai.sets import trees_for
from archec.oai.token import ENVIRONMENT, Tokens, load_secret
from archec.oai.xml import XSI, attribute, element, elements

NOWHERE = "archec.invalid"
"""The domain of identifiers if none is configured; its name shows that it is not for use."""

_NOBODY = f"nobody@{NOWHERE}"
_OAI = "http://www.openarchives.org/OAI"
_EPRINTS = ("content", "metadataPolicy", "dataPolicy", "submissionPolicy")
_REQUIRED_EPRINTS = ("metadataPolicy", "dataPolicy")

_FORMATS: Mapping[str, type[RecordFormat]] = {"oai_dc": DublinCore, "redif": Redif, "amf": Amf}
_ENTRY_POINTS = "archec.oai.formats"
"""The group of entry points in which other packages register their formats."""


@dataclass(frozen=True, slots=True)
class Repository:
    """Everything that responses need.

    ``base_url`` is "" if the address of each request is used. ``trees`` are the trees of sets that are served.
    ``description`` has the description elements of Identify, as XML.
    """

    settings: OaiConfig
    name: str
    domain: str
    base_url: str
    emails: tuple[str, ...]
    kinds: tuple[Kind, ...]
    trees: frozenset[str]
    formats: Mapping[str, RecordFormat]
    description: str
    tokens: Tokens
    index: Index
    reader: ItemReader

    def expiry(self, now: float) -> int:
        return int(now + self.settings.liveTime)


def open_index(url: str, path: Path) -> Index:
    """Opens the index of the catalogue at ``url``, and creates it if it is missing.

    For an SQLite catalogue it is the file ``path``; for a MongoDB catalogue it is in the same database.
    """
    if url.startswith(("mongodb:", "mongodb+srv:")):
        from archec.oai.index_mongo import MongoIndex  # pymongo is slow to import

        return MongoIndex(url)
    return SQLiteIndex(path)


def make_repository(
    config: Config, index: Index, reader: ItemReader, *, environ: Mapping[str, str] = os.environ
) -> Repository:
    """Creates the repository of a configuration. Raises :class:`ConfigError` for invalid settings."""
    oai = config.oai
    base_url = oai.baseURL or (f"{config.server.url}/oai" if config.server.url else "")
    host = urlsplit(base_url).hostname or ""
    domain = oai.repositoryIdentifier or (host if DOMAIN.fullmatch(host) else NOWHERE)
    if oai.earliestDatestamp and parse_date(oai.earliestDatestamp) is None:
        raise ConfigError(f"oai.earliestDatestamp: {oai.earliestDatestamp} is not a date")
    kinds = tuple(kind for kind in ITEM_KINDS if oai.items in (kind, "both"))
    secret = load_secret(config.path(oai.secret), environ.get(ENVIRONMENT))
    return Repository(
        settings=oai,
        name=oai.repositoryName or config.name,
        domain=domain,
        base_url=base_url,
        emails=oai.adminEmail or (_mail_address(config.fetch.contact) or _NOBODY,),
        kinds=kinds,
        trees=trees_for(oai.sets, kinds),
        formats=load_formats(oai.metadataFormats),
        description=_description(oai, domain, config.base),
        tokens=Tokens(secret, domain),
        index=index,
        reader=reader,
    )


def _mail_address(contact: str) -> str:
    """The mail address in ``fetch.contact``, "" if it is not a mail address."""
    address = contact.removeprefix("mailto:").partition("?")[0]
    name, _, host = address.partition("@")
    return address if name and DOMAIN.fullmatch(host) and not any(c.isspace() for c in address) else ""


# -- formats --------------------------------------------------------------------------------------


def load_formats(configured: Sequence[FormatConfig]) -> dict[str, RecordFormat]:
    """The formats by prefix, in the order of the configuration. Raises :class:`ConfigError`."""
    formats: dict[str, RecordFormat] = {}
    for one in configured:
        if one.metadataFormat in formats:
            raise ConfigError(f"oai.metadataFormats: {one.metadataFormat} is listed twice")
        made = _format_class(one.metadataFormatClass)(one.metadataFormatSchema, one.metadataFormatNamespace)
        if not made.schema or not made.namespace:
            raise ConfigError(f"oai.metadataFormats: {one.metadataFormat} lacks its schema or its namespace")
        formats[one.metadataFormat] = made
    if "oai_dc" not in formats:
        raise ConfigError("oai.metadataFormats: oai_dc is missing", hint="the protocol requires it of every repository")
    return formats


def _format_class(name: str) -> type[RecordFormat]:
    """The class of one of archec's own formats, or of one in another package."""
    if name in _FORMATS:
        return _FORMATS[name]
    installed = entry_points(group=_ENTRY_POINTS)
    points = [point for point in installed if point.name == name]
    if len(points) != 1:
        what = "two installed packages have" if points else "no installed package has"
        known = ", ".join(sorted({*_FORMATS, *(point.name for point in installed)}))
        raise ConfigError(f"oai.metadataFormats: {what} a format {name!r}", hint=f"available: {known}")
    try:
        found = points[0].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"oai.metadataFormats: {points[0].value} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, RecordFormat)):
        raise ConfigError(f"oai.metadataFormats: {points[0].value} is not a subclass of RecordFormat")
    return found


# -- descriptions of Identify ---------------------------------------------------------------------
# Sources: the OAI guidelines for oai-identifier, eprints, friends and rights, and their schemas.


def _description(oai: OaiConfig, domain: str, base: Path) -> str:
    """The description elements. Raises :class:`ConfigError` if a container of the operator's is not well-formed XML or
    has no namespace."""
    containers = [_oai_identifier(domain)]
    if any(getattr(oai, name) for name in _EPRINTS):
        containers.append(_eprints({name: getattr(oai, name) for name in _EPRINTS}))
    if oai.friends:
        content = elements("baseURL", oai.friends)
        containers.append(_container("friends", f"{_OAI}/2.0/friends/", f"{_OAI}/2.0/friends.xsd", content))
    if oai.rights:
        content = f'<rights><rightsReference ref="{attribute(oai.rights)}"/></rights>'
        applies = f' appliesTo="{_OAI}/2.0/entity#metadata"'
        schema = f"{_OAI}/2.0/rightsManifest.xsd"
        containers.append(_container("rightsManifest", f"{_OAI}/2.0/rights/", schema, content, applies))
    containers += [_operators_container(value, base) for value in oai.description]
    return "".join([f"<description>{container}</description>" for container in containers])


def _container(name: str, namespace: str, schema: str, content: str, attributes: str = "") -> str:
    location = f'xmlns:xsi="{XSI}" xsi:schemaLocation="{namespace} {schema}"'
    return f'<{name} xmlns="{namespace}" {location}{attributes}>{content}</{name}>'


def _oai_identifier(domain: str) -> str:
    namespace = f"{_OAI}/2.0/oai-identifier"
    content = (
        f"<scheme>oai</scheme>{element('repositoryIdentifier', domain)}<delimiter>:</delimiter>"
        f"{element('sampleIdentifier', identifier(domain, 'RePEc:aaa:ssssss:1'))}"
    )
    return _container("oai-identifier", namespace, f"{namespace}.xsd", content)


def _eprints(given: Mapping[str, str]) -> str:
    namespace = f"{_OAI}/1.1/eprints"
    parts = []
    for name, value in given.items():
        if value:
            tag = "URL" if value.startswith(("http://", "https://")) and " " not in value else "text"
            parts.append(f"<{name}>{element(tag, value)}</{name}>")
        elif name in _REQUIRED_EPRINTS:
            parts.append(f"<{name}/>")
    return _container("eprints", namespace, f"{namespace}.xsd", "".join(parts))


def _operators_container(value: str, base: Path) -> str:
    """A container from the configuration: XML, or the path of a file with it."""
    try:
        data = value.encode() if value.lstrip().startswith("<") else read_file(base / value)
        parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
        root = etree.fromstring(data, parser)
    except (OSError, UnicodeError, etree.XMLSyntaxError, ValueError) as error:
        raise ConfigError(f"oai.description: {value[:60]!r} is neither XML nor a file with it: {error}") from error
    if not etree.QName(root).namespace:
        raise ConfigError(f"oai.description: {value[:60]!r} has no namespace")
    return etree.tostring(root, encoding="unicode")
