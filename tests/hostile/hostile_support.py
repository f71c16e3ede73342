"""What the tests of hostile input share: a run of the command, and what it must come to whatever it was given."""

from __future__ import annotations

import gzip
import json
import unicodedata
from pathlib import Path
from typing import Any

from gather_support import Done, Member, archec_inline, template

from archec.config import Config

GOOD = "RePEc:zzz:good:1"
"""The handle of a template that is there besides, and that every run must take."""


def good(urls: tuple[str, ...] = ()) -> Member:
    """A file of a data set with one template that nothing is wrong with."""
    return Member("RePEc/zzz/good/1.rdf", template(GOOD, urls=urls).encode())


def gathered(config: Config, *arguments: object, code: int = 0) -> dict[str, Any]:
    """The report of ``archec gather --json``, which ended as it should: quietly, and with its exit code."""
    done = archec_inline(config, "gather", "--json", *arguments)
    assert done.code == code, done
    assert_clean(done)
    report: dict[str, Any] = json.loads(done.out)
    return report


def assert_clean(done: Done) -> None:
    """Asserts that a command did not break, and that nothing it printed speaks to the terminal."""
    assert "Traceback" not in done.err
    for text in (done.out.decode(), done.err):
        bad = {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cs")}
        assert not bad, (bad, text[:2000])


def problems(report: dict[str, Any]) -> set[tuple[str, str]]:
    """(path, code) of the problems that a report lists."""
    return {(one["path"], one["code"]) for one in report["problems"]["first"]}


def written(folder: Path) -> dict[str, bytes]:
    """The contents of every file below a folder, by relative path; what is compressed both ways."""
    found: dict[str, bytes] = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = str(path.readlink()).encode()
        elif path.is_file():
            data = found[str(path.relative_to(folder))] = path.read_bytes()
            if path.suffix == ".gz":
                found[f"{path.relative_to(folder)} unpacked"] = gzip.decompress(data)
    return found
