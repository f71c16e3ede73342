"""The lists: lost, changes and coverage of a catalogue of 5 million obis; first rows, full coverage, memory.

The catalogue is made by Catalogue.write, in the shape of RePEc's: 1.3 files a work, of which most are held, some lost,
refused, unreachable or never tried. Then the commands run as an operator runs them. A first row's time is that from the
start of the process to its first line; that of `archec --version` is shown for comparison.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from archec.catalogue.engines import open_catalogue
from archec.catalogue.model import Changes, Note, Obi, Position, Version, Visit
from archec.digest import md5_hex, sha256_hex
from archec.history import History
from benchmarks.catalogue import FIRST, chunks, handle
from benchmarks.runner import BenchmarkError, Report, archec, environment

SECOND = 1384017230
MEMORY = 512
_FILES = 1.3
"""Files of a work."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--obis", type=int, default=5_000_000, help="templates and files together")
    parser.add_argument("--rounds", type=int, default=5, help="times that each first row is waited for")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    works = round(arguments.obis / (1 + _FILES))
    if works < 2000:
        raise BenchmarkError("--obis must be 5,000 or more")
    report.versions["SQLite"] = sqlite3.sqlite_version
    place = folder / "archive"
    archec(folder, "init", place)
    _make_catalogue(place, works)
    group = f"{arguments.obis:,} obis"
    some = handle(works // 2).split(":")[1]
    for command in (
        "--version", "lost", f"lost --archive {some}", "lost --returned", "changes", f"changes --since {SECOND}",
        f"coverage --json --archive {some}", "coverage --json",
    ):  # fmt: skip
        times = [_first_line(place, *command.split()) * 1000 for _ in range(arguments.rounds)]
        report.add(group, f"{command}: first row", "ms", times)
    for name in ("coverage", "lost"):
        done, _ = archec(place, name, memory=True)
        lines = done.output.count("\n")
        report.add(group, f"{name}, all of it", "s", [done.wall], f"{lines:,} lines, {done.cpu:.1f} s CPU")
        report.judge(f"{group}: {name}, memory", done.peak / 2**20, "MiB", most=MEMORY)


def _first_line(place: Path, *arguments: str) -> float:
    """Seconds to the first line that a command prints."""
    command = [sys.executable, "-m", "archec", *arguments]
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        line = os.read(child.stdout.fileno(), 10)
        taken = time.perf_counter() - began
        child.terminate()
    if not line:
        raise BenchmarkError(f"archec {' '.join(arguments)} printed nothing")
    return taken


# -- the catalogue --------------------------------------------------------------------------------


def _make_catalogue(place: Path, works: int) -> None:
    catalogue = open_catalogue("sqlite:///data/catalogue.sqlite", base=place, create=True)
    try:
        number = 0
        for changes in chunks(works):
            tobis = [_tobi(number + n, tobi) for n, tobi in enumerate(changes.obis)]
            number += len(tobis)
            fobis = [fobi for tobi in tobis for fobi in _fobis(tobi)]
            # A catalogue without journals: no command has anything to catch up with.
            catalogue.write(replace(changes, position=Position(), obis=[*tobis, *fobis]))
        catalogue.write(Changes(Position()))
    finally:
        catalogue.close()


def _tobi(number: int, tobi: Obi) -> Obi:
    """One of twenty is lost, one of two hundred came back."""
    if number % 20:
        return tobi
    (state,) = tobi.history.states
    entries: dict[int, str | None] = {FIRST: state, SECOND: None}
    if number % 200 == 0:
        entries[SECOND + 86400] = state
    notes = {tist: Note(tist, "lost" if held is None else "new") for tist, held in entries.items()}
    return replace(tobi, history=History.of(entries), notes=notes)


def _fobis(tobi: Obi) -> Iterator[Obi]:
    """Of ten files six are held, one is lost, one refused, one does not answer, one was never visited."""
    due = SECOND + 86400 * 30
    for version in tobi.versions.values():
        for ref in version.refs:
            state, text = sha256_hex(ref.url.encode()), md5_hex(ref.url.encode())
            die = int(state[:8], 16) % 10
            if die == 1:
                yield Obi(ref.url, "fobi", visit=Visit(SECOND, "forbidden", 403), due=due)
            elif die == 2:
                yield Obi(ref.url, "fobi", visit=Visit(SECOND, "unreachable"), due=due)
            elif die:
                lost = die == 3
                entries: dict[int, str | None] = {FIRST: state} | ({SECOND: None} if lost else {})
                notes = {FIRST: Note(FIRST, "new", status=200)}
                if lost:
                    notes[SECOND] = Note(SECOND, "lost", status=404)
                visit = Visit(SECOND, "gone" if lost else "same", etag='"x"', checked=SECOND)
                media_type = "application/pdf" if die < 9 else "text/html"
                versions = {state: Version(state, text, 400_000, text, media_type)}
                yield Obi(ref.url, "fobi", History.of(entries), versions, notes, visit=visit, due=due, stamp=1)
