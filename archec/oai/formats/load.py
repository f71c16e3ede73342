"""From the configuration to the formats: archec's own, and those of other packages by entry point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points

from archec.config import FormatConfig
from archec.errors import ConfigError
from archec.oai.formats.amf import Amf
from archec.oai.formats.base import RecordFormat
from archec.oai.formats.dc import DublinCore
from archec.oai.formats.redif import Redif

__all__ = ["GROUP", "OWN", "load_formats"]

GROUP = "archec.oai.formats"
"""The group of entry points in which packages name their formats."""

OWN: Mapping[str, type[RecordFormat]] = {"oai_dc": DublinCore, "redif": Redif, "amf": Amf}


def load_formats(configured: Sequence[FormatConfig]) -> dict[str, RecordFormat]:
    """The formats by prefix, in the order of the configuration. Raises :class:`ConfigError`."""
    formats: dict[str, RecordFormat] = {}
    for one in configured:
        if one.metadataFormat in formats:
            raise ConfigError(f"oai.metadataFormats: {one.metadataFormat} stands there twice")
        found = _class(one.metadataFormatClass)(one.metadataFormatSchema, one.metadataFormatNamespace)
        if not found.schema or not found.namespace:
            raise ConfigError(f"oai.metadataFormats: {one.metadataFormat} lacks its schema or its namespace")
        formats[one.metadataFormat] = found
    if "oai_dc" not in formats:
        raise ConfigError("oai.metadataFormats: oai_dc is missing", hint="the protocol demands it of every repository")
    return formats


def _class(name: str) -> type[RecordFormat]:
    if name in OWN:
        return OWN[name]
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if len(points) != 1:
        known = ", ".join(sorted({*OWN, *(point.name for point in entry_points(group=GROUP))}))
        what = "two installed packages have" if points else "no installed package has"
        raise ConfigError(f"oai.metadataFormats: {what} a format {name!r}", hint=f"there are: {known}")
    try:
        found = points[0].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"oai.metadataFormats: {points[0].value} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, RecordFormat)):
        raise ConfigError(f"oai.metadataFormats: {points[0].value} is not a subclass of RecordFormat")
    return found
