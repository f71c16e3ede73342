"""What the audit's tests share: an archive with all that an archive can hold, and ways to look at it."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gather_site import Site, moved, page, pdf
from gather_support import Member, make, run, tarball, template, write_papers

from archec.archive.opening import Archive
from archec.audit.check import CheckSummary, check
from archec.audit.copies import open_copy
from archec.audit.findings import Finding
from archec.audit.opening import opened_for_audit
from archec.audit.repair import Repair
from archec.audit.verify import Scope, VerifySummary, verify
from archec.catalogue.engines import open_catalogue
from archec.config import Config, load
from archec.progress import Meter
from archec.store.layout import Layout, open_layout

LONG = "/" + "long-" * 60 + ".pdf"


@dataclass(frozen=True)
class World:
    """An archive, and where in it (relative to the obi store) some kinds of things lie."""

    config: Config
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return open_layout(self.config.store_path)

    def path(self, what: str) -> Path:
        """The absolute path of one of ``places``."""
        return self.config.store_path / self.places[what]


def gather_world(folder: Path) -> World:
    """Gathers an archive: changed and lost templates, a late data set, files, redirects, a name that is cut."""
    config = make(folder)
    for year, title in ((2001, "Early"), (2003, "Early"), (2002, "Between")):
        member = Member("zzz/sss/1.rdf", template("RePEc:zzz:sss:1", title).encode())
        run(config, tarball(folder / f"RePEc_{year}-01-01.tar", [member]))
    with Site() as site:
        site["/a.pdf"] = pdf("a")
        site["/b.html"] = page("first")
        site["/old"] = moved(site.url("/a.pdf"))
        site["/hop"] = moved(site.url("/old"))
        site["/dir"] = moved(site.url("/dir/"))
        site["/dir/"] = page("a directory")
        site[LONG] = pdf("long")
        urls = [site.url(path) for path in ("/a.pdf", "/b.html", "/hop", "/dir", LONG)]
        write_papers(config, urls)
        first = run(config).run
        site["/b.html"] = page("second")
        write_papers(config, urls[:-1], title="Another title")
        second = run(config).run
    layout = open_layout(config.store_path)
    at = layout.path
    places = {
        "pdf": at(first, urls[0]),
        "old page": at(first, urls[1]),
        "new page": at(second, urls[1]),
        "link": at(first, urls[2]),
        "cut name": at(first, urls[4]),
        "template": at(first, "RePEc:aaa:sss:0"),
        "early": at(978307200, "RePEc:zzz:sss:1"),
        "late": at(1009843200, "RePEc:zzz:sss:1"),
        "restated": at(1041379200, "RePEc:zzz:sss:1"),
        "journal": f"runs/{first}.jsonl.gz",
        "last journal": f"runs/{second}.jsonl.gz",
    }
    assert all(os.path.lexists(config.store_path / path) for path in places.values()), places
    return World(config, places)


def clone(world: World, folder: Path) -> World:
    """A copy of an archive with its configuration and its catalogue; not of what was checked."""
    subprocess.run(["cp", "-a", "--", world.config.base, folder], check=True)
    for path in (folder / "data").glob("*.fixity.sqlite*"):
        path.unlink()
    return World(load(folder / "config.yaml", environ={}), world.places)


def tree(root: Path) -> dict[str, str]:
    """All that lies below a folder but the lock and the record of quarantine: relative path -> what it is."""
    found: dict[str, str] = {}
    for folder, directories, names in os.walk(root):
        for name in [*names, *(d for d in directories if Path(folder, d).is_symlink())]:
            path = Path(folder, name)
            relative = str(path.relative_to(root))
            if path.is_symlink():
                found[relative] = f"-> {path.readlink()}"
            elif path.is_file():
                found[relative] = hashlib.md5(path.read_bytes()).hexdigest()
            else:
                found[relative] = "neither"
    found.pop("lock", None)
    found.pop("quarantine/moved.jsonl", None)
    return found


def verified(
    world: World, *, copy: str | Path | None = None, scope: Scope | None = None
) -> tuple[VerifySummary, list[Finding]]:
    """``archec verify`` in this process."""
    findings: list[Finding] = []
    with opened_for_audit(world.config, writable=copy is not None) as archive:
        if copy is None:
            return verify(archive, scope or Scope(), Meter(), findings.append), findings
        assert archive.catalogue is not None
        with open_copy(str(copy), archive.config, archive.layout) as source:
            repair = Repair(Archive(world.config, archive.layout, archive.catalogue), source)
            return verify(archive, scope or Scope(), Meter(), findings.append, repair), findings


def checked(world: World, *, fix: bool = False, quick: bool = False) -> tuple[CheckSummary, list[Finding]]:
    """``archec check`` in this process."""
    findings: list[Finding] = []
    with opened_for_audit(world.config, lock="check" if fix else "") as archive:
        return check(archive, Meter(), findings.append, fix=fix, quick=quick), findings


def codes(findings: list[Finding], path: str = "") -> list[str]:
    """The codes of findings (about a path), sorted."""
    return sorted(finding.code for finding in findings if not path or finding.path == path)


def run_sql(world: World, *statements: str) -> None:
    """Changes the SQLite catalogue behind archec's back."""
    catalogue = open_catalogue(world.config.database, base=world.config.base)
    catalogue.close()
    with sqlite3.connect(world.config.base / "data" / "catalogue.sqlite") as db:
        for statement in statements:
            db.execute(statement)
    db.close()


def rewrite(path: Path, data: bytes) -> None:
    """Changes a file's bytes in place, as a bad disk does: its name, its inode and its links stay."""
    mode = path.stat().st_mode
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(mode)


def flip(path: Path, at: int = -3) -> None:
    """Flips one bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    rewrite(path, bytes(data))
