"""Candidates: files that templates name and that are data sets of a platform, not yet ingested."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from archec.catalogue.interface import Catalogue
from archec.fileset.model import IngestRequest
from archec.fileset.platforms.registry import Registry
from archec.fileset.resolve import identifier_of
from archec.ids import archive_of

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


class Candidate(NamedTuple):
    """A template that names a data set: its id, the URL, the platform that the URL or its DOI is of."""

    id: str
    url: str
    platform: str


def platform_of(url: str, registry: Registry) -> str:
    """The platform of which a URL, or the DOI in it, is a data set; empty where it is of none."""
    identifier = identifier_of(url)
    if identifier is not None:
        return next((name for name, pattern in _DOIS if pattern.match(identifier)), "")
    helper = registry.match(IngestRequest(url), None)
    return helper.name if helper is not None else ""


def candidates(catalogue: Catalogue, registry: Registry, archive: str = "") -> Iterator[Candidate]:
    """What templates (of one archive, or of all) name now, and no ingest has asked for, each URL once a template."""
    prefix = f"RePEc:{archive}:" if archive else ""
    for tobi in catalogue.tobi_files(prefix, f"RePEc:{archive};" if archive else ""):
        if not tobi.held or (archive and archive_of(tobi.id) != archive):
            continue
        for url in tobi.files:
            platform = platform_of(url, registry)
            if platform and catalogue.ingest("dataset", url) is None:
                yield Candidate(tobi.id, url, platform)
