"""The fallback for unknown platforms: the machine-readable description in the landing page itself.

In this order: the ``item`` links of Signposting (``Link`` headers, ``link`` elements or a link set, RFC 8288 and 9264)
unless they are of another resource (``anchor``); then ``Dataset`` of schema.org and Croissant, as JSON-LD in the page
or in a file to which a ``describedby`` or ``alternate`` link leads. Signposting's ``cite-as`` is the URL for citations.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from msgspec.structs import replace

from archec.errors import BadName
from archec.fileset import fields
from archec.fileset.checksums import Checksums, checksums
from archec.fileset.fields import JsonValue, first_of
from archec.fileset.model import FilesetManifestFile, IngestRequest, Resource
from archec.fileset.pages import Page, objects_of
from archec.fileset.platforms.base import (
    AnyRequest,
    FilesetPlatformHelper,
    PlatformAnswer,
    Question,
    Questions,
    download_url,
    host_of,
    item_name,
    license_of,
    manifest_file,
)
from archec.fileset.redaction import public_url
from archec.fileset.status import FilesetPlatformScopeError, FilesetProblem, NoPlatformMatch, PlatformError, Status
from archec.ids import is_url, normalise_url
from archec.text.sniff import bare_type
from archec.urlkey import urlkey
from archec.web.messages import whole

_PAIR = r""" ?([!#$%&'*+.^_`|~0-9a-zA-Z-]+)(?: ?= ?(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^",;<> ]+)))?"""
_LINK = re.compile(rf"<([^<>]*)>((?: ?;(?:{_PAIR})?)*) ?(?:,|$)")
_PARAMETER = re.compile(f";{_PAIR}")
"""Both expect text with single blanks. They take linear time for any text: nothing matches in two ways, and no repeated
part can contain the ``<`` at which the next attempt begins."""
_ESCAPED = re.compile(r"\\(.)")
_BYTES = re.compile("([0-9]{1,18}) ?(?:b|bytes?)?")
_LONGEST_CITED = 1000
_MOST_ASKED = 5
"""Link sets, and JSON-LD files, that are requested in turn."""
_MOST_DESCRIBED = 1000
"""Data sets on a page that are looked at."""
_JSON = ("application/ld+json", "application/json")
_LINK_SETS = ("application/linkset+json", "application/linkset")
_SCHEMA = ("", "https://schema.org/", "http://schema.org/", "sc:", "schema:", "sdo:")


class TypedLink(NamedTuple):
    """A link of RFC 8288: target, relations, parameters. ``anchor`` is the URL of its context; empty if not stated."""

    url: str
    relations: frozenset[str]
    parameters: dict[str, str]
    anchor: str = ""


class GenericHelper(FilesetPlatformHelper):
    """Any landing page that describes its data set in one of the standard ways."""

    name = "generic"
    pages = ("/{work}", "/{work}")
    is_documented = False

    def match_request(
        self, request: AnyRequest, resource: Resource | None = None, html_biblio: object = None
    ) -> bool:
        """Whether there is a landing page with status 200."""
        return resource is not None and resource.status == 200

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Reads the page, and asks for link sets and JSON-LD files that it links to, until one has what is needed."""
        if resource is None:
            raise NoPlatformMatch("there is no landing page")
        url = resource.terminal_url
        page = Page(resource.body, resource.headers.get("content-type", ""))
        own = {"", _key(url), _key(request.base_url)}
        names = [name for name in (*request.ext_ids.values(), request.identifier) if name]

        def of_page(links: Iterable[TypedLink]) -> list[TypedLink]:
            return [link for link in links if _key(link.anchor) in own]

        base = _joined(url, page.base()) or url
        found = of_page([*links(resource.headers.get("link", ""), url), *_elements(page, base)])
        problem: FilesetProblem = NoPlatformMatch(
            f"{url[:300]}: not of a known platform, and the page lists no files of a data set"
        )
        for link in [one for one in found if _is_link_set(one)][:_MOST_ASKED]:
            answer = yield Question(link.url, accept=", ".join(_LINK_SETS), secret=False, page=True)
            try:
                more = of_page(_link_set(answer)) if answer.status == 200 else []
            except PlatformError as error:
                more, problem = [], error
            found += more
            if more:
                break
        cited = next((link.url for link in found if "cite-as" in link.relations and is_url(link.url)), "")
        about = _About({*own, _key(cited)} - {""}, tuple(one.lower() for one in names if isinstance(one, str) and one))
        data = _Described(page.json_ld(), base, about)
        files = [_linked(link) for link in found if "item" in link.relations] or list(data.files(base))
        for link in _described_by(found)[:_MOST_ASKED]:
            if files:
                break
            answer = yield Question(link.url, accept="application/ld+json", secret=False, page=True)
            try:
                is_json = _is_json_ld(link) or bare_type(answer.headers.get("content-type", "")) in _JSON
                is_described = answer.status == 200 and is_json
                other = _Described(objects_of(answer.body) if is_described else (), answer.url, about)
                data = data if other.dataset.is_null and not any(other.members()) else other
                files = list(data.files(answer.url))
            except PlatformError as error:
                problem = error
        if not files:
            if members := list(data.members()):
                raise FilesetPlatformScopeError("the page is of several data sets", members=members)
            raise problem
        described = data.dataset
        name = _plain(described["name"]).text_or_none() or page.title()
        parts = urlsplit(public_url(url))
        work = parts.path.strip("/") or "-"
        if parts.query:
            work += "?" + parts.query
        version, published = _plain(described["version"]).raw, _plain(described["datePublished"])
        item = self.item(
            url, work, files, title=name, name=item_name(self.domain(url), work), page=url,
            version=fields.clean(str(version))[:100] if isinstance(version, (str, int, float)) else "",
            published=published.tist() if isinstance(published.raw, str) else 0,
            meta={"license": license_of(described["license"])},
        )  # fmt: skip
        return replace(item, cite_as=cited if len(cited) < _LONGEST_CITED else "")


def links(header: str, base: str) -> Iterator[TypedLink]:
    """Yields the links of a Link header (RFC 8288). Invalid ones are skipped."""
    for match in _LINK.finditer(" ".join(header[:1_000_000].split())):
        parameters: dict[str, str] = {}
        for name, quoted, bare in _PARAMETER.findall(match[2]):
            parameters.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) or bare)
        relations = frozenset(parameters.get("rel", "").lower().split())
        with suppress(ValueError):
            anchor = _joined(base, parameters.get("anchor"))
            yield TypedLink(urljoin(base, match[1].strip()), relations, parameters, anchor)


def _elements(page: Page, base: str) -> Iterator[TypedLink]:
    """Yields the ``link`` elements of a page as links."""
    for element in page.links():
        with suppress(ValueError):
            relations = frozenset(element.pop("rel").lower().split())
            yield TypedLink(urljoin(base, element.pop("href").strip()), relations, element)


def _is_link_set(link: TypedLink) -> bool:
    return "linkset" in link.relations and bare_type(link.parameters.get("type", "")) in ("", *_LINK_SETS)


def _is_json_ld(link: TypedLink) -> bool:
    """Whether a link says that it is to JSON-LD."""
    kind = bare_type(link.parameters.get("type", ""))
    return kind == "application/ld+json" or "croissant" in link.parameters.get("profile", "")


def _described_by(found: Iterable[TypedLink]) -> list[TypedLink]:
    """The links to descriptions in JSON-LD, those to the page itself in JSON-LD, then the links to descriptions that do
    not say in what form these are."""
    links = list(found)
    described = [link for link in links if "describedby" in link.relations]
    others = (link for link in described if not (link.parameters.get("type") or _is_json_ld(link)))
    alternate = (link for link in links if "alternate" in link.relations and _is_json_ld(link))
    return [*filter(_is_json_ld, described), *alternate, *(link for link in others if is_url(link.url))]


def _link_set(answer: PlatformAnswer) -> list[TypedLink]:
    """Parses a link set in text or JSON format (RFC 9264, sections 4.1 and 4.2)."""
    if bare_type(answer.headers.get("content-type", "")) != "application/linkset":
        return list(_json_links(answer.json(), answer.url))
    answer.check()
    return list(links(answer.body.decode("utf-8", "replace"), answer.url))


def _joined(base: str, anchor: str | None) -> str:
    """The absolute URL of an anchor; empty if there is none, unchanged if it is invalid."""
    try:
        return "" if anchor is None else urljoin(base, anchor.strip())
    except ValueError:
        return anchor or ""


def _key(url: str) -> str:
    """A key that is equal for all spellings of a URL."""
    try:
        return urlkey(normalise_url(url))
    except BadName:
        return url


def _json_links(body: JsonValue, base: str) -> Iterator[TypedLink]:
    for context in body["linkset"].items():
        anchor = _joined(base, context["anchor"].text_or_none())
        for relation, targets in context.members():
            if relation == "anchor":
                continue
            for target in targets.items():
                parameters = {name: value.raw for name, value in target.members() if isinstance(value.raw, str)}
                yield TypedLink(download_url(target["href"], base), frozenset([relation]), parameters, anchor)


def _name_in(url: str) -> str:
    """The name of a file: the last part of its URL, or the one before ``content`` or ``download`` that looks like a
    name, as InvenioRDM and others have it."""
    parts = urlsplit(url).path.split("/")
    last = parts[-2] if parts[-1] in ("content", "download") and "." in parts[-2] else parts[-1]
    return unquote(last) or host_of(url)


def _linked(link: TypedLink) -> FilesetManifestFile:
    path = _name_in(link.url)
    size = whole(link.parameters.get("length", ""))
    return manifest_file(path, size, checksums(), link.url, link.parameters.get("type"))


def _is(one: JsonValue, name: str) -> bool:
    return any(kind.raw in [f"{prefix}{name}" for prefix in _SCHEMA] for kind in one["@type"].one_or_more())


class _About(NamedTuple):
    """What a request is about: the keys of its URLs, and its other identifiers, in lower case."""

    urls: Container[str]
    names: tuple[str, ...]

    def are_of(self, one: JsonValue, base: str, *, fragments: bool) -> bool:
        """Whether a Dataset says that it is what the request is about. ``fragments``: or a fragment of that."""
        ends = tuple(mark + name for name in self.names for mark in "/:")
        values = (value for name in ("@id", "url", "identifier", "sameAs") for value in one[name].one_or_more())
        texts = ((first_of(_plain(value), value["value"]) if value.is_object else value).raw for value in values)
        return any(
            (("#" in text) <= fragments and _key(_joined(base, text)) in self.urls)
            or f"/{text.lower()}".endswith(ends)
            for text in texts if isinstance(text, str)
        )  # fmt: skip


class _Described:
    """The Dataset among the objects of a JSON-LD document; null if there is none. One that is a part of another does
    not count. Of several it is the one that the request is about; null if that is unclear."""

    def __init__(self, objects: Iterable[JsonValue], base: str, about: _About) -> None:
        nodes = list(objects)
        self._nodes = {name: one for one in nodes if isinstance(name := one["@id"].raw, str)}
        self._catalogues = [one for one in nodes if _is(one, "DataCatalog")]
        found = list(islice((one for one in nodes if _is(one, "Dataset")), _MOST_DESCRIBED))
        self._several: list[JsonValue] = []
        if len(found) > 1:
            ids = {name for one in found if isinstance(name := one["@id"].raw, str)}
            parts = {name for one in found for name in _ids(one["hasPart"])}
            found = [one for one in found if not (parts & _ids(one) or ids & _ids(one["isPartOf"]))] or found
            own = ([one for one in found if about.are_of(one, base, fragments=some)] for some in (False, True))
            found = next(filter(None, own), found)
            names = {str(_first(one, "@id", "url", "name").raw) for one in found}
            self._several = found if len(names) > 1 else []
        self.dataset = found[0] if found and not self._several else JsonValue(None)

    def members(self) -> Iterator[str]:
        """Yields the URLs (or ids, or names) of the data sets that a catalogue lists, of the parts of the Dataset that
        are data sets, and of several on the page."""
        listed = (one for catalogue in self._catalogues for one in catalogue["dataset"].one_or_more())
        parts = (self._node(one) for one in self.dataset["hasPart"].one_or_more())
        for one in (*listed, *(part for part in parts if part.is_object and _is(part, "Dataset")), *self._several):
            name = _first(one, "url", "@id", "name").raw if one.is_object else None
            if name and isinstance(name, str):
                yield name

    def _node(self, stated: JsonValue) -> JsonValue:
        """The node with the id of an object, if the document has one, else the object."""
        name = stated["@id"].raw if stated.is_object else None
        return self._nodes.get(name, stated) if isinstance(name, str) else stated

    def files(self, base: str) -> Iterator[FilesetManifestFile]:
        """Yields the files of its distribution, of which a graph may have the ids only, except those that are contained
        in another (Croissant)."""
        for stated in self.dataset["distribution"].one_or_more():
            one = stated if "contentUrl" in stated else self._node(stated)
            if isinstance(one.raw, str) and is_url(one.raw):
                url = download_url(one, base)
                yield manifest_file(_name_in(url), None, checksums(), url)
            elif one.is_object and not one["contentUrl"].is_null and one["containedIn"].is_null:
                yield _distribution(one, base)


def _first(one: JsonValue, *names: str) -> JsonValue:
    """The first of the fields with these names that is not null; null if all are."""
    return first_of(*(_plain(one[name]) for name in names))


def _ids(field: JsonValue) -> set[str]:
    """The ids of one or more nodes."""
    return {name for one in field.one_or_more() if one.is_object and isinstance(name := one["@id"].raw, str)}


def _distribution(one: JsonValue, base: str) -> FilesetManifestFile:
    url = download_url(_plain(one["contentUrl"]), base)
    name, mimetype = _plain(one["name"]).text_or_none() or _name_in(url), _plain(one["encodingFormat"]).text_or_none()
    if (mimetype or "").startswith("git+"):  # Croissant: a repository, whose files are not listed
        return manifest_file(name, None, Checksums(), None, None, {"link": url}, Status.SKIPPED_LINK_ONLY.value)
    kinds = ("sha256", "md5", "sha1")
    sums = [checksums(one[kind].text_or_none(), kind=kind) for kind in kinds if isinstance(one[kind].raw, str)]
    merged = Checksums(*(next((s[n] for s in sums if s[n]), None) for n in range(3)))
    size = _plain(one["contentSize"])
    return manifest_file(name, None if size.is_null else _size(size), merged, url, mimetype)


def _plain(field: JsonValue) -> JsonValue:
    """A value of JSON-LD: the first one of a list, and that in an object with a language, a type or an id."""
    first = field.first
    return first_of(first["@value"], first["@id"]) if first.is_object else first


def _size(field: JsonValue) -> int | None:
    """A size in bytes; None for other text, such as ``2.5 MB``, which is rounded."""
    if not isinstance(field.raw, str):
        return field.whole_or_none()
    match = _BYTES.fullmatch(" ".join(field.text().lower().split()))
    return None if match is None else int(match[1])
