"""What the export's tests share: an archive, its vault, and a reader that believes nothing."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gather_site import Answer, Site, moved, page, pdf
from gather_support import Member, catalogue_of, make, run, tarball, template, write_papers
from warcio.archiveiterator import ArchiveIterator

from archec.archive.opening import Archive
from archec.config import Config, load
from archec.export.run import ExportSummary, export_warc
from archec.export.units import UnitSelection
from archec.export.writing import ExportRequest, NotExported
from archec.progress import Meter
from archec.store.layout import Layout, open_layout

PACKED = gzip.compress(b"<!DOCTYPE html><html><body>packed on its way</body></html>" * 20, mtime=0)


@dataclass(frozen=True)
class World:
    """An archive, the URLs in it by their path, and the tists of its two runs with files."""

    config: Config
    urls: dict[str, str]
    first: int
    second: int

    @property
    def layout(self) -> Layout:
        return open_layout(self.config.store_path)


def gather_world(folder: Path) -> World:
    """Templates of three dates; files that change, stay (by 304 or by their bytes), redirect, are packed, shared."""
    config = make(folder)
    for year, title in ((2001, "Early"), (2003, "Early"), (2002, "Between")):
        member = Member("zzz/sss/1.rdf", template("RePEc:zzz:sss:1", title).encode())
        series = Member("zzz/zzzseri.rdf", b"Template-Type: ReDIF-Series 1.0\nName: S\nHandle: RePEc:zzz:sss\n")
        archive = Member("zzz/zzzarch.rdf", b"Template-Type: ReDIF-Archive 1.0\nName: Z\nHandle: RePEc:zzz\n")
        run(config, tarball(folder / f"RePEc_{year}-01-01.tar", [member, series, archive]))
    with Site() as site:
        site["/a.pdf"] = pdf("a")
        site["/b.html"] = page("first")
        site["/old"] = moved(site.url("/a.pdf"))
        site["/hop"] = moved(site.url("/old"), 302)
        site["/dir"] = moved(site.url("/dir/"))
        site["/dir/"] = page("a directory")
        site["/packed"] = Answer(200, PACKED, {"Content-Type": "text/html", "Content-Encoding": "gzip"})
        site["/empty"] = Answer(200, b"", {"Content-Type": "text/plain"})
        tagged = {"Content-Type": "application/pdf", "ETag": '"1"'}
        site["/tagged"] = lambda before: Answer(304, b"", tagged) if before else Answer(200, b"%PDF-1.4 tagged", tagged)
        paths = ("/a.pdf", "/b.html", "/hop", "/dir", "/packed", "/empty", "/tagged")
        urls = {path: site.url(path) for path in (*paths, "/old", "/dir/")}
        named = [urls[path] for path in paths]
        write_papers(config, named)
        write_papers(config, [urls["/a.pdf"]], archive="bbb")
        first = run(config).run
        site["/b.html"] = page("second")
        write_papers(config, named[1:], title="Another title")
        second = run(config).run
    return World(config, urls, first, second)


def clone(world: World, folder: Path) -> World:
    """A copy of an archive with its configuration and its catalogue."""
    subprocess.run(["cp", "-a", "--", world.config.base, folder], check=True)
    return World(load(folder / "config.yaml", environ={}), world.urls, world.first, world.second)


def exported(
    world: World,
    vault: Path,
    *,
    wanted: UnitSelection | None = None,
    since: int = 0,
    dry: bool = False,
    revisits: bool = True,
    max_bytes: int = 1 << 30,
) -> tuple[ExportSummary, list[NotExported]]:
    """``archec export warc`` in this process."""
    problems: list[NotExported] = []
    with catalogue_of(world.config) as catalogue:
        request = ExportRequest(vault, wanted or UnitSelection(), since, dry, revisits, max_bytes)
        summary = export_warc(Archive(world.config, world.layout, catalogue), request, Meter(), problems.append)
    return summary, problems


class Record(NamedTuple):
    """A WARC record as warcio reads it."""

    type: str
    uri: str
    date: str
    id: str
    headers: dict[str, str]
    status: str
    http: dict[str, str]
    body: bytes


def records_of(path: Path) -> Iterator[Record]:
    """The records of a WARC file, each digest checked again."""
    with open(path, "rb") as file:
        for record in ArchiveIterator(file, no_record_parse=False, check_digests="raise"):
            headers = dict(record.rec_headers.headers)
            head = record.http_headers
            body = record.raw_stream.read()
            if record.rec_type in ("response", "resource"):
                wanted = "sha1:" + base64.b32encode(hashlib.sha1(body).digest()).decode()
                assert headers["WARC-Payload-Digest"] == wanted
            yield Record(
                record.rec_type,
                headers.get("WARC-Target-URI", ""),
                headers["WARC-Date"],
                headers["WARC-Record-ID"],
                headers,
                head.statusline if head else "",
                {name.lower(): value for name, value in head.headers} if head else {},
                body,
            )


def all_records(vault: Path) -> list[Record]:
    """The records of all files of a vault but the files' own."""
    paths = sorted((vault / "archive").rglob("*.warc.gz"))
    return [record for path in paths for record in records_of(path) if record.type != "warcinfo"]


def check_vault(vault: Path) -> None:
    """Asserts that every index is sorted, names whole members, and names every record, once."""
    named: list[tuple[str, int]] = []
    for index in (vault / "indexes").glob("*"):
        assert index.name.endswith(".cdxj"), index
        lines = index.read_bytes().splitlines(keepends=True)
        assert lines == sorted(set(lines)), index
        for line in lines:
            _, stamp, text = line.split(b" ", 2)
            value = json.loads(text)
            path = vault / "archive" / value["filename"]
            offset, length = int(value["offset"]), int(value["length"])
            member = path.read_bytes()[offset : offset + length]
            unpacker = zlib.decompressobj(31)
            head = unpacker.decompress(member).decode("utf-8", "replace")
            assert unpacker.eof, line
            assert not unpacker.unused_data, line
            assert f"\r\nWARC-Target-URI: {value['url']}\r\n" in head
            date = head.partition("WARC-Date: ")[2].partition("\r\n")[0]
            assert "".join(filter(str.isdigit, date)) == stamp.decode()
            assert (value["mime"] == "warc/revisit") == ("\r\nWARC-Type: revisit\r\n" in head)
            named.append((value["filename"], offset))
    assert len(named) == len(set(named))
    assert len(named) == len(all_records(vault))
    leavings = [path for path in vault.rglob("*") if path.is_file() and path.name.endswith(".part")]
    assert leavings == []


def tree(vault: Path) -> dict[str, bytes]:
    """All files of a vault but its lock."""
    found = {str(path.relative_to(vault)): path.read_bytes() for path in vault.rglob("*") if path.is_file()}
    found.pop("lock", None)
    return found
