"""The demo's ReDIF data set: one archive, one series, its papers, at each of three stages."""

from __future__ import annotations

from pathlib import Path

from archec.demo.papers import PAPERS, STAGES, Paper
from archec.errors import UsageError

__all__ = ["HANDLES", "write_data_set"]

HANDLES = ("RePEc:dmo", "RePEc:dmo:wpaper", *(paper.handle for paper in PAPERS))
"""Every handle of the data set, in the order of its files."""


def write_data_set(directory: Path, stage: int, base_url: str) -> tuple[Path, ...]:
    """Writes the data set of a stage below ``directory``, over that of another stage; the files written.

    ``base_url`` is the web site's, without a slash at its end. The 2010 file is in cp1252 with CRLF
    line ends, the 2011 file in UTF-8, as archives do.
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
