"""The lists: lost, changes and coverage of a catalogue of 5 million obis; first rows, full coverage, memory.

The catalogue is made by Catalogue.write, in the shape of RePEc's: 1.3 files a work, of which most are held, some lost,
refused, unreachable or never tried. Then the commands run as an operator runs them. A first row's time is that from the
start of the process to its first line, less that of a command that prints its version.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import md5
from pathlib import Path

from archec.catalogue.model import Changes, Fobi, FobiNote, FobiVersion, Position, Tobi, TobiNote, Visit
from archec.catalogue.open import open_catalogue
from archec.history import History
from benchmarks.catalogue_documents import FIRST, SECOND, handle, lots
from benchmarks.machine import Watch
from benchmarks.outcome import Report, at_most
from benchmarks.running import BenchmarkError, archec, environment

TOUCH = 512
_FILES = 1.3
"""Files of a work."""
_STEADY = Position()
"""The position of a catalogue without journals: no command has anything to catch up with."""


def options(parser: argparse.ArgumentParser) -> None:
    """The command line of this benchmark."""
    parser.add_argument("--obis", type=int, default=5_000_000, help="templates and files together")
    parser.add_argument("--rounds", type=int, default=5, help="times that each first row is waited for")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Makes the catalogue, then measures each command."""
    works = round(arguments.obis / (1 + _FILES))
    if works < 2000:
        raise BenchmarkError("--obis must be 5,000 or more")
    report.versions["SQLite"] = sqlite3.sqlite_version
    place = folder / "archive"
    archec(folder, "init", place)
    group = f"{arguments.obis:,} obis"
    watch = Watch()
    began = time.perf_counter()
    _make(place, works)
    report.loads.append(watch.load())
    report.add(group, "making the catalogue", "s", [time.perf_counter() - began])
    _first_rows(place, works, arguments.rounds, group, report)
    for name, command in (("full coverage", ("coverage",)), ("all that is lost", ("lost",))):
        done, _ = archec(place, *command, memory=True)
        report.loads.append(done.load)
        rows = done.output.count("\n")
        report.add(group, name, "s", [done.wall], f"{rows:,} lines, {done.cpu:.1f} s of CPU")
        report.add(group, f"{name}, memory", "MiB", [done.peak / 2**20])
        report.figures.append(at_most(f"{group}: {name}, memory", done.peak / 2**20, 512, "MiB"))
        if name == "full coverage":
            report.figures.append(at_most(f"{group}: {name}", done.wall, 20, "s"))


def _first_rows(place: Path, works: int, rounds: int, group: str, report: Report) -> None:
    middle = handle(works // 2).split(":")[1]
    commands: dict[str, tuple[str, ...]] = {
        "lost": ("lost",),
        "lost --kind fobi": ("lost", "--kind", "fobi"),
        "lost --archive": ("lost", "--archive", middle),
        "lost --returned": ("lost", "--returned"),
        "changes": ("changes",),
        "changes --since": ("changes", "--since", str(SECOND)),
        "coverage --archive": ("coverage", "--json", "--archive", middle),
        "coverage": ("coverage", "--json"),
    }
    watch = Watch()
    start = statistics.median(_first_line(place, "--version") for _ in range(rounds))
    report.add(group, "start of archec", "ms", [start * 1000])
    for name, command in commands.items():
        times = [(_first_line(place, *command) - start) * 1000 for _ in range(rounds)]
        found = report.add(group, f"{name}: first row", "ms", times)
        report.figures.append(at_most(f"{group}: {name}, first row", found.median, 200, "ms"))
    report.loads.append(watch.load())


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


def _make(place: Path, works: int) -> None:
    catalogue = open_catalogue("sqlite:///data/catalogue.sqlite", base=place, create=True)
    try:
        numbers = iter(range(works))
        for changes in lots(range(works), 0, FIRST):
            tobis = [_tobi(next(numbers), tobi) for tobi in changes.tobis]
            fobis = [fobi for tobi in tobis for fobi in _fobis(tobi)]
            catalogue.write(replace(changes, position=_STEADY, tobis=tobis, fobis=fobis))
        catalogue.write(Changes(_STEADY))
    finally:
        catalogue.close()


def _tobi(number: int, tobi: Tobi) -> Tobi:
    """One of twenty is lost, one of two hundred came back."""
    if number % 20:
        return tobi
    (state,) = tobi.history.states
    entries: dict[int, str | None] = {FIRST: state, SECOND: None}
    if number % 200 == 0:
        entries[SECOND + 86400] = state
    notes = {tist: TobiNote(tist, "lost" if held is None else "new") for tist, held in entries.items()}
    return replace(tobi, history=History.of(entries), notes=notes)


def _fobis(tobi: Tobi) -> Iterator[Fobi]:
    """Of ten files six are held, one is lost, one refused, one does not answer, one was never visited."""
    for version in list(tobi.versions.values())[-1:]:
        for ref in version.refs:
            state = md5(ref.url.encode(), usedforsecurity=False).hexdigest()
            die = int(state[:8], 16) % 10
            due = SECOND + 86400 * 30
            if die == 0:
                continue
            if die in (1, 2):
                outcome = "forbidden" if die == 1 else "unreachable"
                yield Fobi(ref.url, visit=Visit(SECOND, outcome, 403 if die == 1 else 0), due=due)
                continue
            entries: dict[int, str | None] = {FIRST: state} | ({SECOND: None} if die == 3 else {})
            notes = {
                tist: FobiNote(tist, "lost" if held is None else "new", 404 if held is None else 200)
                for tist, held in entries.items()
            }
            kind = "application/pdf" if die < 9 else "text/html"
            visit = Visit(SECOND, "gone" if die == 3 else "same", etag='"x"', checked=SECOND)
            versions = {state: FobiVersion(state, 400_000, state, kind)}
            yield Fobi(ref.url, History.of(entries), versions, notes, visit, due, 1)
