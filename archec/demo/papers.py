"""The invented papers of the demo, with their ReDIF data set and the responses of their web site, at three stages,
and the small PDF writer (ISO 32000-1, section 7) that makes them: the same arguments give the same bytes.

Each paper demonstrates one case, described by its ``story``. Stages are 1, 2 and 3.
"""

from __future__ import annotations

import hashlib
import html
import textwrap
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from archec.errors import UsageError

_WIDTH, _HEIGHT, _MARGIN, _LEADING = 595, 842, 72, 15
_LINE, _LINES = 84, 46
"""Characters per line and lines per page, at 11 points on A4."""


def write_pdf(pages: Sequence[str], *, title: str = "", created: str = "D:20090101000000Z") -> bytes:
    """A PDF with these pages, each truncated to what fits; an empty page is blank.

    ``created`` is the /CreationDate, from which the /ID is derived: renderings with different dates have different
    bytes and the same text. Characters outside cp1252 become question marks.
    """
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode("ascii"),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Title " + _string(title) + b" /Producer (archec demo) /CreationDate " + _string(created) + b" >>",
    ]
    for number, text in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {_WIDTH} {_HEIGHT}] /Contents {6 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode("ascii")
        )
        objects.append(_stream(_content(text)))
    return write_objects(objects, info=4, identity=created)


def write_objects(objects: Sequence[bytes], *, info: int = 0, identity: str = "", trailer: bytes = b"") -> bytes:
    """A PDF file with the given objects 1, 2, ...; object 1 is the catalogue.

    ``info`` is the number of the information dictionary, 0 for none; the /ID is derived from ``identity``;
    ``trailer`` are further entries of the trailer.
    """
    file = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for offset in offsets:
        file += b"%010d 00000 n \n" % offset
    digest = hashlib.sha256(identity.encode("utf-8")).hexdigest()[:32].encode("ascii")
    file += b"trailer\n<< /Size %d /Root 1 0 R /ID [<%s> <%s>]" % (len(objects) + 1, digest, digest)
    if info:
        file += b" /Info %d 0 R" % info
    file += b" " + trailer + b" >>\nstartxref\n%d\n%%%%EOF\n" % start
    return bytes(file)


def _content(text: str) -> bytes:
    lines = [line for paragraph in text.splitlines() for line in textwrap.wrap(paragraph, _LINE) or [""]]
    if not lines:
        return b""
    top = _HEIGHT - _MARGIN
    shown = b"".join(_string(line) + b" Tj T*\n" for line in lines[:_LINES])
    return b"BT /F1 11 Tf %d TL %d %d Td\n%sET\n" % (_LEADING, _MARGIN, top, shown)


def _stream(content: bytes) -> bytes:
    packed = zlib.compress(content, 9)
    return b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)


def _string(text: str) -> bytes:
    """A literal string in WinAnsiEncoding."""
    raw = text.encode("cp1252", "replace")
    for special in (b"\\", b"(", b")"):
        raw = raw.replace(special, b"\\" + special)
    return b"(" + raw.replace(b"\r", b"\\r").replace(b"\n", b"\\n") + b")"


STAGES = (1, 2, 3)

_CREATED = {1: "D:20090501100000Z", 2: "D:20100501100000Z", 3: "D:20110501100000Z"}


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: its metadata, the path and media type of its file, and what happens to it."""

    number: int
    title: str
    author: str
    year: int
    abstract: str
    path: str
    media_type: str
    story: str

    @property
    def handle(self) -> str:
        return f"RePEc:dmo:wpaper:{self.year}-{self.number:02d}"


class SiteAnswer(NamedTuple):
    """A response of the site: status, media type and body, or the target of a redirect."""

    status: int
    media_type: str = "text/html; charset=utf-8"
    body: bytes = b""
    location: str = ""
    since: int = 1
    """The stage since which this has been the response, for Last-Modified."""
    cached: bool = True
    """Whether the response has validators (ETag, Last-Modified)."""


PAPERS = (
    Paper(1, "Bread Prices and the Length of the Working Day", "Ada Lindqvist", 2009,
          "Bakers work longer where bread is dear.", "/papers/bread.pdf", "application/pdf", "stays as it is"),
    Paper(2, "Do Ferries Lower Rents on Islands?", "Tomás Oliveira", 2009,
          "A new ferry lowers rents by four percent.", "/papers/ferries.pdf", "application/pdf",
          "is revised in stage 2"),
    Paper(3, "Umbrella Sharing under Uncertain Weather", "Mei Tanaka", 2009,
          "Shared umbrellas are scarce when it rains.", "/papers/umbrellas.pdf", "application/pdf",
          "is rendered again at each stage, with the same text"),
    Paper(4, "The Market for Secondhand Clocks", "Jonas Weber", 2009,
          "Buyers of clocks know less than time will tell.", "/papers/clocks.pdf", "application/pdf",
          "goes away in stage 2"),
    Paper(5, "Tolls on Mountain Passes, 1650 to 1800", "Chiara Bernasconi", 2009,
          "Tolls fell when a second pass was opened.", "/go/5", "application/pdf", "is behind a chain of redirects"),
    Paper(6, "A Theory of Queues at Small Post Offices", "Samuel Okafor", 2009,
          "Two short queues are not one long queue.", "/papers/queues", "text/html",
          "is a directory: a redirect adds the slash; the page changes with each visit"),
    Paper(7, "Lighthouses as Private Enterprises", "Zoë Müller", 2010,
          "Some lighthouses were paid for by the ships.", "/papers/lighthouses.pdf", "application/pdf",
          "is not available in stage 2 (the server is overloaded)"),
    Paper(8, "Wage Setting in Travelling Circuses", "Ivan Petrović", 2010,
          "Acrobats are paid for risk, clowns for skill.", "/private/circuses.pdf", "application/pdf",
          "is disallowed by robots.txt"),
    Paper(9, "Notes on the Demand for Chess Books", "Léa Fontaine", 2010,
          "Demand rises with every world championship.", "/papers/chess.txt", "text/plain",
          "is plain text; its second File-URL is not a URL of the web"),
    Paper(10, "Gardens, Fences and Property Rights", "Nadia Haddad", 2010,
          "Good fences make measurable neighbours.", "/papers/gardens.html", "text/html", "is a web page"),
    Paper(11, "How Villages Share a Well", "Piotr Zieliński", 2011,
          "Rules about wells outlive the wells.", "/papers/wells.pdf", "application/pdf",
          "has a template that disappears in stage 2 and returns in stage 3"),
    Paper(12, "The Half-Life of Price Tags", "Grace Mbeki", 2011,
          "Half of all price tags are gone after a season.", "/papers/tags.pdf", "application/pdf",
          "has a template that changes in stage 2"),
    Paper(13, "Snow, Shovels and Scarcity", "Erik Halvorsen", 2011,
          "Prices of shovels rise before the snow falls.", "/papers/shovels.pdf", "application/pdf",
          "turns into a log-in page in stage 3"),
)  # fmt: skip

_ROBOTS = b"User-agent: *\nDisallow: /private/\n"


def answer(path: str, stage: int, visit: int) -> SiteAnswer:
    """The response to a GET of ``path``, after ``visit`` requests to the site. A pure function."""
    match path:
        case "/":
            return SiteAnswer(200, body=_index())
        case "/robots.txt":
            return SiteAnswer(200, "text/plain", _ROBOTS)
        case "/go/5":
            return SiteAnswer(302, location="/go/5/latest", cached=False)
        case "/go/5/latest":
            return SiteAnswer(301, location="/papers/tolls.pdf", cached=False)
        case "/papers/tolls.pdf":
            return SiteAnswer(200, "application/pdf", _pdf(PAPERS[4], 1))
        case "/papers/queues":
            return SiteAnswer(301, location="/papers/queues/", cached=False)
        case "/papers/queues/":
            return _queues(visit)
    for paper in PAPERS:
        if paper.path == path:
            return _paper(paper, stage)
    return SiteAnswer(404, body=_page("Not found", "There is no such page."), cached=False)


def write_data_set(directory: Path, stage: int, base_url: str) -> tuple[Path, ...]:
    """Writes the data set of a stage below ``directory``, replacing that of another stage. Returns the files.

    ``base_url`` is that of the web site, without a trailing slash. As in real archives, encodings differ: the file of
    2010 is in cp1252 with CRLF line ends, that of 2011 in UTF-8.
    """
    if stage not in STAGES:
        raise UsageError(f"the demo has no stage {stage}", hint="its stages are 1, 2 and 3")
    folder = directory / "dmo" / "wpaper"
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        directory / "dmo" / "dmoarch.rdf": _archive(base_url).encode("ascii"),
        directory / "dmo" / "dmoseri.rdf": _series().encode("ascii"),
        folder / "2009.rdf": _year(2009, stage, base_url).encode("utf-8"),
        folder / "2010.rdf": _year(2010, stage, base_url).replace("\n", "\r\n").encode("cp1252", "replace"),
        folder / "2011.redif": _year(2011, stage, base_url).encode("utf-8"),
    }
    for path, data in files.items():
        path.write_bytes(data)
    return tuple(files)


def _paper(paper: Paper, stage: int) -> SiteAnswer:
    if paper.media_type == "text/plain":
        return SiteAnswer(200, "text/plain; charset=utf-8", _text(paper, 1).encode())
    if paper.media_type == "text/html":
        return SiteAnswer(200, body=_page(paper.title, _text(paper, 1)))
    match paper.number:
        case 2:
            return SiteAnswer(200, paper.media_type, _pdf(paper, min(stage, 2)), since=min(stage, 2))
        case 3:
            return SiteAnswer(200, paper.media_type, _pdf(paper, 1, _CREATED[stage]), since=stage)
        case 4 if stage > 1:
            return SiteAnswer(404, body=_page("Not found", "This paper has been withdrawn."), cached=False)
        case 7 if stage == 2:
            return SiteAnswer(503, body=_page("Overloaded", "Please come again later."), cached=False)
        case 13 if stage == 3:
            return SiteAnswer(200, body=_page("Log in", "Please log in to read this paper."), since=3)
    return SiteAnswer(200, paper.media_type, _pdf(paper, 1))


def _queues(visit: int) -> SiteAnswer:
    """A page without validators whose bytes change with each visit and whose text stays the same."""
    token = f"{visit * 2654435761 % 2**32:08x}"
    hidden = f'<!-- made for visit {visit} --><form><input type="hidden" name="token" value="{token}"></form>'
    script = f'<script>var token = "{token}";</script>'
    return SiteAnswer(200, body=_page(PAPERS[5].title, _text(PAPERS[5], 1), hidden + script), cached=False)


def _text(paper: Paper, version: int) -> str:
    finding = paper.abstract.rstrip(".")
    lines = [paper.title, f"by {paper.author}", "", f"Abstract. {paper.abstract}", ""]
    if version > 1:
        lines += [f"Version {version}. The estimates of the first version were too large by half.", ""]
    for section in ("Introduction", "Data", "Results", "Conclusion"):
        lines += [
            section,
            f"This section looks at the claim of the paper: {finding[0].lower()}{finding[1:]}.",
            f"The {paper.number * 37} observations are as invented as {paper.author} is.",
            "",
        ]
    return "\n".join(lines)


def _pdf(paper: Paper, version: int, created: str = "") -> bytes:
    appendix = f"Appendix to: {paper.title}\n\nTables are left as an exercise."
    return write_pdf(
        [_text(paper, version), appendix], title=paper.title, created=created or _CREATED[version]
    )


def _page(title: str, text: str, extra: str = "") -> bytes:
    paragraphs = "".join(f"<p>{html.escape(line)}</p>\n" for line in text.splitlines() if line)
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title>'
    return f"<!DOCTYPE html>\n<html lang=en><head>{head}</head>\n<body>{extra}\n{paragraphs}</body></html>\n".encode()


def _index() -> bytes:
    items = "".join(f'<li><a href="{paper.path}">{html.escape(paper.title)}</a></li>\n' for paper in PAPERS)
    return f"<!DOCTYPE html>\n<html><title>Demo University</title><ul>\n{items}</ul></html>\n".encode()


def _archive(base_url: str) -> str:
    return (
        "Template-Type: ReDIF-Archive 1.0\n"
        "Handle: RePEc:dmo\n"
        "Name: Demo University, Department of Economics\n"
        f"URL: {base_url}/RePEc/dmo/\n"
        "Maintainer-Name: Nobody in Particular\n"
        "Maintainer-Email: nobody@example.org\n"
    )


def _series() -> str:
    return (
        "Template-Type: ReDIF-Series 1.0\n"
        "Name: Demo University Working Papers\n"
        "Type: ReDIF-Paper\n"
        "Provider-Name: Demo University\n"
        "Maintainer-Email: nobody@example.org\n"
        "Handle: RePEc:dmo:wpaper\n"
    )


def _year(year: int, stage: int, base_url: str) -> str:
    papers = [paper for paper in PAPERS if paper.year == year and not (paper.number == 11 and stage == 2)]
    return "\n".join(_template(paper, stage, base_url) for paper in papers)


def _template(paper: Paper, stage: int, base_url: str) -> str:
    lines = [
        "Template-Type: ReDIF-Paper 1.0",
        f"Author-Name: {paper.author}",
        "Author-Workplace-Name: Demo University",
        f"Title: {paper.title}",
        f"Abstract: {paper.abstract}",
    ]
    if paper.number == 12 and stage > 1:
        lines += ["  This version counts the winter season, too.", "Revision-Date: 2012-02"]
    lines += [
        f"Creation-Date: {paper.year}-05",
        f"Number: {paper.year}-{paper.number:02d}",
        f"File-URL: {base_url}{paper.path}",
        f"File-Format: {paper.media_type}",
        "File-Function: Full text",
    ]
    if paper.number == 9:
        lines += ["File-URL: file:///C:/My%20Documents/chess.doc", "File-Format: application/msword"]
    lines += [f"Handle: {paper.handle}"]
    return "\n".join(lines) + "\n"
