"""The description containers of Identify: oai-identifier, eprints, friends, rights, and the operator's.

Sources: the OAI guidelines for these containers, and their schemas.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lxml import etree

from archec.config import OaiConfig
from archec.errors import ConfigError
from archec.oai.formats.base import XSI
from archec.oai.names import identifier
from archec.oai.xml import attribute, element, elements

__all__ = ["Descriptions", "describe", "read_descriptions"]

_OAI = "http://www.openarchives.org/OAI"
_EPRINTS = ("content", "metadataPolicy", "dataPolicy", "submissionPolicy")


class Descriptions(NamedTuple):
    """What the operator says: ``eprints`` are pairs of a policy's name and its text or URL; ``others``
    whole containers as XML text."""

    eprints: tuple[tuple[str, str], ...] = ()
    friends: tuple[str, ...] = ()
    rights: str = ""
    others: tuple[str, ...] = ()


def read_descriptions(oai: OaiConfig, base: Path) -> Descriptions:
    """The descriptions of a configuration. Raises :class:`ConfigError` for a container that is not
    well-formed XML in a namespace of its own."""
    given = [(name, str(getattr(oai, name))) for name in _EPRINTS]
    eprints = [(name, value) for name, value in given if value]
    return Descriptions(
        tuple(eprints), oai.friends, oai.rights, tuple(_container(value, base) for value in oai.description)
    )


def describe(descriptions: Descriptions, domain: str) -> str:
    """The ``description`` elements."""
    containers = [_oai_identifier(domain)]
    if descriptions.eprints:
        containers.append(_eprints(dict(descriptions.eprints)))
    if descriptions.friends:
        containers.append(_friends(descriptions.friends))
    if descriptions.rights:
        containers.append(_rights(descriptions.rights))
    containers += descriptions.others
    return "".join([f"<description>{container}</description>" for container in containers])


def _container(value: str, base: Path) -> str:
    try:
        data = value.encode() if value.lstrip().startswith("<") else (base / value).read_bytes()
        parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
        root = etree.fromstring(data, parser)
    except (OSError, UnicodeError, etree.XMLSyntaxError, ValueError) as error:
        raise ConfigError(f"oai.description: {value[:60]!r} is neither XML nor a file with it: {error}") from error
    if not etree.QName(root).namespace:
        raise ConfigError(f"oai.description: {value[:60]!r} has no namespace")
    return etree.tostring(root, encoding="unicode")


def _open(name: str, namespace: str, schema: str) -> str:
    return f'<{name} xmlns="{namespace}" xmlns:xsi="{XSI}" xsi:schemaLocation="{namespace} {schema}"'


def _oai_identifier(domain: str) -> str:
    namespace = f"{_OAI}/2.0/oai-identifier"
    sample = identifier(domain, "RePEc:aaa:ssssss:1")
    return (
        f"{_open('oai-identifier', namespace, f'{namespace}.xsd')}><scheme>oai</scheme>"
        f"{element('repositoryIdentifier', domain)}<delimiter>:</delimiter>"
        f"{element('sampleIdentifier', sample)}</oai-identifier>"
    )


def _eprints(given: dict[str, str]) -> str:
    namespace = f"{_OAI}/1.1/eprints"
    parts = []
    for name in _EPRINTS:
        value = given.get(name, "")
        if value:
            tag = "URL" if value.startswith(("http://", "https://")) and " " not in value else "text"
            parts.append(f"<{name}>{element(tag, value)}</{name}>")
        elif name in ("metadataPolicy", "dataPolicy"):  # the schema demands these two
            parts.append(f"<{name}/>")
    return f"{_open('eprints', namespace, f'{namespace}.xsd')}>{''.join(parts)}</eprints>"


def _friends(friends: tuple[str, ...]) -> str:
    namespace = f"{_OAI}/2.0/friends/"
    return f"{_open('friends', namespace, f'{_OAI}/2.0/friends.xsd')}>{elements('baseURL', friends)}</friends>"


def _rights(url: str) -> str:
    namespace = f"{_OAI}/2.0/rights/"
    head = _open("rightsManifest", namespace, f"{_OAI}/2.0/rightsManifest.xsd")
    return (
        f'{head} appliesTo="{_OAI}/2.0/entity#metadata"><rights>'
        f'<rightsReference ref="{attribute(url)}"/></rights></rightsManifest>'
    )
