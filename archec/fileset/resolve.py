"""From what somebody asks for to the URL of a data set: DOIs and handles are resolved by their registry."""

from __future__ import annotations

import re
from collections.abc import Generator
from urllib.parse import quote, unquote, urlsplit

from archec.errors import BadName
from archec.fileset.platforms.base import PlatformAnswer, Question, host_of
from archec.fileset.problems import BadRequest, PlatformError, PlatformNotFound
from archec.ids import FilesetId, is_fileset, is_url, parse_fileset

_DOI = re.compile(r"(?:doi:\s*|https?://(?:dx\.|www\.)?doi\.org/)?(10\.[0-9]{4,9}/\S+)", re.I)
_HANDLE = re.compile(r"(?:hdl:\s*|https?://hdl\.handle\.net/)([0-9][0-9.]*/\S+)", re.I)


def identifier_of(text: str, resolver: str = "") -> str | None:
    """The DOI or handle in what was asked for; None where it is a URL of something else. ``resolver`` is the base of
    the configured one, whose URLs count like those of doi.org."""
    plain = text.strip()
    own = resolver.rstrip("/")
    if own and plain.startswith(own + "/"):
        plain = plain[len(own) + 1 :]
    for pattern in (_DOI, _HANDLE):
        found = pattern.fullmatch(plain)
        if found is not None:
            name = unquote(found[1]).rstrip("/")
            return name.partition("?")[0] if plain.lower().startswith("http") else name
    return None


def resolved(identifier: str, resolver: str) -> Generator[Question, PlatformAnswer, str]:
    """The URL that a DOI or a handle stands for. Raises PlatformNotFound for one that is not registered."""
    url = f"{resolver.rstrip('/')}/api/handles/{quote(identifier, safe='/.-_~:;()')}"
    answer = yield Question(f"{url}?type=URL", secret=False)
    if answer.status == 404:
        raise PlatformNotFound(f"{identifier} is not registered")
    body = answer.json()
    for value in body["values"].items():
        if value["type"].text_or_none() == "URL":
            found = value["data"]["value"].text().strip()
            if not is_url(found) or not host_of(found):
                raise PlatformError(f"{value['data']['value'].shown}: {found[:200]!r} is no URL")
            return found
    raise PlatformNotFound(f"{identifier} has no URL")


def url_of(fileset: str) -> str:
    """The URL of a data set with the id of a fileset. Raises BadRequest for platforms whose URLs do not follow."""
    try:
        found = parse_fileset(fileset)
    except BadName as error:
        raise BadRequest(error.message) from error
    path = _path(found)
    if path is None:
        raise BadRequest(f"{fileset[:200]}: ask for a data set of {found.platform} by its URL")
    scheme = "http" if re.match(r"(?:127\.|localhost)", found.domain) else "https"
    return f"{scheme}://{found.domain}{path}"


def _path(of: FilesetId) -> str | None:
    version, work = of.version, quote(of.work, safe=":/")
    if of.platform in ("zenodo", "inveniordm", "b2share"):
        return f"/records/{quote(version or of.work)}"
    if of.platform in ("figshare", "4tu"):
        return f"/articles/{work}" + (f"/{quote(version)}" if version else "")
    if of.platform == "dataverse":
        return f"/dataset.xhtml?persistentId={work}" + (f"&version={quote(version)}" if version else "")
    if of.platform == "archiveorg":
        return f"/details/{work}"
    if of.platform == "osf":
        return f"/{work}/"
    if of.platform == "dryad":
        return f"/dataset/{work}"
    if of.platform == "mendeley":
        return f"/datasets/{work}" + (f"/{quote(version)}" if version else "")
    if of.platform == "openicpsr":
        return f"/openicpsr/project/{work}/version/{quote(version or 'V1')}/view"
    if of.platform == "hal":
        return f"/{work}" + (f"v{quote(version)}" if version else "")
    return f"/{work.lstrip('/')}" if of.platform == "generic" else None


def known_url(text: str) -> str | None:
    """The URL in what was asked for, None where it is none."""
    plain = text.strip()
    if is_fileset(plain):
        return url_of(plain)
    return plain if is_url(plain) and urlsplit(plain).hostname else None
