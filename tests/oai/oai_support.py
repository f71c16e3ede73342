"""What the tests of OAI-PMH share: a small repository with a clock of its own, schemas, a walk over lists."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import md5, sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from lxml import etree

import archec.oai
from archec.archive.opening import Archive
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Changes, Claim, Note, Obi, Position, Refipo, Version, Visit
from archec.catalogue.sqlite import SQLiteCatalogue
from archec.config import Config, OaiConfig
from archec.history import History
from archec.oai.follow import Follower
from archec.oai.index import Index
from archec.oai.index_sqlite import SQLiteIndex
from archec.oai.items import ItemReader
from archec.oai.provider import answer
from archec.oai.repository import Repository, make_repository
from archec.oai.request import Argument
from archec.oai.sets import SetRules
from archec.store.layout import create

SCHEMAS = Path(os.environ.get("ARCHEC_OAI_SCHEMAS", Path(__file__).parents[3] / "shared" / "xsd"))
WITHOUT = "the schemas of OAI-PMH are not here; set ARCHEC_OAI_SCHEMAS to a folder with all.xsd"
SECRET = {"ARCHEC_OAI_SECRET": "0123456789abcdef0123456789abcdef"}
BASE = "http://archive.example.org/oai"
DOMAIN = "archive.example.org"
OAI = "{http://www.openarchives.org/OAI/2.0/}"
NS = {"o": "http://www.openarchives.org/OAI/2.0/", "dc": "http://purl.org/dc/elements/1.1/", "r": "urn:archec:redif:1"}
NOON = 1_700_000_000


class Clock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now: float = NOON) -> None:
        self.now = float(now)

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@lru_cache
def schema() -> etree.XMLSchema | None:
    """The schemas of the protocol, of all payloads, and our own; None where they are not at hand."""
    if not (SCHEMAS / "all.xsd").exists():
        return None
    parser = etree.XMLParser(no_network=True)
    driver = etree.parse(SCHEMAS / "all.xsd", parser).getroot()
    for one in driver:
        if isinstance(one.tag, str):
            one.set("schemaLocation", (SCHEMAS / one.get("schemaLocation")).as_uri())
    own = etree.SubElement(driver, "{http://www.w3.org/2001/XMLSchema}import", namespace=NS["r"])
    own.set("schemaLocation", (Path(archec.oai.__path__[0]) / "redif.xsd").as_uri())
    return etree.XMLSchema(driver)


def checked(body: bytes) -> etree._Element:
    """The root of an answer: well-formed, in UTF-8, and valid where the schemas are at hand."""
    body.decode("utf-8")
    root = etree.fromstring(body, etree.XMLParser(no_network=True, huge_tree=True))
    known = schema()
    if known is not None:
        assert known.validate(root), f"{known.error_log}\n{body[:3000].decode()}"
    assert root.tag == f"{OAI}OAI-PMH"
    return root


def code(root: etree._Element) -> str:
    """The error code of an answer, "" where there is none."""
    found = root.find(f"{OAI}error")
    return "" if found is None else str(found.get("code"))


def texts(root: etree._Element, path: str) -> list[str]:
    return [str(found.text or "") for found in root.findall(path, NS)]


# -- documents ------------------------------------------------------------------------------------


def version_of(contents: str, /, **more: Any) -> Version:
    """The version whose bytes are a text."""
    data = contents.encode("utf-8", "surrogatepass")
    return Version(sha256(data).hexdigest(), md5(data, usedforsecurity=False).hexdigest(), len(data), **more)


def paper(
    obi: str, stamp: int, *, tist: int = 1_200_000_000, lost: bool = False, kind: str = "ReDIF-Paper", title: str = ""
) -> Obi:
    """A tobi with one content, lost a day later if asked for."""
    version = version_of(
        f"{obi}{tist}{title}",
        text=version_of(title).md5, type=kind, title=title or f"About {obi}", refs=(Refipo("http://h.org/a.pdf"),),
    )  # fmt: skip
    entries: dict[int, str | None] = {tist: version.sha256}
    if lost:
        entries[tist + 86400] = None
    notes = {
        when: Note(tist + 5, "lost" if one is None else "new")
        for when, one in entries.items()
    }
    claims = (Claim(tist, tist + 5, version.sha256, "aaa/x.rdf", 3),)
    handle = obi.upper().replace("REPEC", "RePEc")
    return Obi(obi, "tobi", History.of(entries), {version.sha256: version}, notes, handle, stamp=stamp, claims=claims)


def file(
    url: str, stamp: int, *, tist: int = 1_200_000_000, lost: bool = False, type_: str = "application/pdf"
) -> Obi:
    """A fobi with one content, lost a day later if asked for."""
    version = version_of(f"{url}{tist}{type_}", type=type_)
    entries: dict[int, str | None] = {tist: version.sha256}
    if lost:
        entries[tist + 86400] = None
    notes = {when: Note(tist + 5, "lost" if one is None else "new", status=200) for when, one in entries.items()}
    visit = Visit(tist, "new", 200)
    return Obi(url, "fobi", History.of(entries), {version.sha256: version}, notes, visit=visit, due=tist, stamp=stamp)


# -- a repository ---------------------------------------------------------------------------------


class World:
    """A catalogue, its index and the repository over them, in a folder; times are the clock's."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: OaiConfig | None = None,
        catalogue: Catalogue | None = None,
        index: Index | None = None,
        chunk: int = 500,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.clock = Clock()
        self.layout = create(folder / "archive")
        self.catalogue = catalogue or SQLiteCatalogue("sqlite:///c", folder / "c.sqlite", create=True)
        self.index = index or SQLiteIndex(folder / "oai.sqlite")
        self._chunk = chunk
        self._batch = self.catalogue.position().batch
        self.use(settings or OaiConfig())

    def use(self, settings: OaiConfig) -> None:
        """Other settings from now on."""
        given = dataclasses.replace(
            settings,
            repositoryIdentifier=settings.repositoryIdentifier or DOMAIN,
            baseURL=settings.baseURL or BASE,
            adminEmail=settings.adminEmail or ("admin@example.org",),
            secret="oai.secret",
        )
        self.config = Config(base=self.folder, name="Test archive", oai=given)
        reader = ItemReader(Archive(self.config, self.layout, self.catalogue))
        self.repository: Repository = make_repository(self.config, self.index, reader, environ=SECRET)
        rules = SetRules(given.sets, given.collections)
        self.follower = Follower(self.catalogue, self.index, rules, chunk=self._chunk, clock=self.clock)

    def write(self, *obis: Obi) -> None:
        """One batch of the archive's writer, stamped by the clock."""
        self._batch += 1
        stamp = max(self.catalogue.position().stamp, int(self.clock()))
        dated = [msgspec.structs.replace(obi, stamp=stamp) for obi in obis]
        self.catalogue.write(Changes(Position(1000, self._batch, stamp, f"{self._batch:064x}"), obis=dated))

    def show(self, *obis: Obi) -> None:
        """Writes, and lets so much time pass that harvesters see it."""
        if obis:
            self.write(*obis)
        sum(self.follower.steps())
        self.clock.pass_(3)

    def raw(self, pairs: Sequence[Argument]) -> bytes:
        return answer(self.repository, pairs, BASE, self.clock()).body

    def ask(self, verb: str, **arguments: str) -> etree._Element:
        """The root of an answer, checked; ``from_`` stands for ``from``."""
        pairs: list[Argument] = [("verb", verb), *((name.rstrip("_"), value) for name, value in arguments.items())]
        return checked(self.raw(pairs))

    def walk(self, verb: str, between: Callable[[], None] = lambda: None, **arguments: str) -> Iterator[etree._Element]:
        """Every answer of a list, following its tokens."""
        root = self.ask(verb, **arguments)
        while True:
            yield root
            token = root.find(f"{OAI}{verb}/{OAI}resumptionToken")
            if token is None or not token.text:
                return
            between()
            root = self.ask(verb, resumptionToken=token.text)

    def identifiers(self, between: Callable[[], None] = lambda: None, **arguments: str) -> list[str]:
        """The identifiers of a whole harvest, in order."""
        given = {"metadataPrefix": "oai_dc", **arguments}
        roots = self.walk("ListIdentifiers", between, **given)
        return [one for root in roots for one in texts(root, ".//o:header/o:identifier")]

    def close(self) -> None:
        self.index.close()
        self.catalogue.close()


def query(verb: str, **arguments: str) -> str:
    return urlencode({"verb": verb, **{name.rstrip("_"): value for name, value in arguments.items()}})
