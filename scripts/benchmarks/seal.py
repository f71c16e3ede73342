"""Seals of an archive of ten million entries: the first one, and one after another night's run; compared with hashing.

The journals are those of one large run and of a small one; what they name is not there, as a seal does not look at it.
The peer is "zcat | sha256sum" of the same journals, which makes no tree. Memory must not grow with the entries, and the
second seal must cost what its night brought.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from archec.catalogue.journal_lines import ObiChange, RunEnd, RunStart, encode
from archec.catalogue.model import Note, Refipo, Version
from archec.digest import md5_hex, sha256_hex
from archec.store.journal import JournalWriter
from archec.store.layout import open_layout
from benchmarks.runner import BenchmarkError, Finished, Report, archec, run

FIRST = 1352481230
_BATCH = 2000
_PEER = "zcat | sha256sum"
_TIMES = 3.0
"""How many times as long as its peer a first seal may take."""
_PEAK = 200.0
"""MB that a seal may take, however many entries there are."""
_AFTERWARDS = 5.0
"""Seconds that the seal after a night's run may take."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--night", type=int, default=10_000, help="entries of a night's run")


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """First seals, hashing and seals after a night, in turn."""
    place = folder / "archive"
    place.mkdir()
    archec(place, "init", "--config", "config.yaml")
    runs = place / "archive" / "runs"
    head = _gathered(place, FIRST, arguments.entries, "")
    first: list[Finished] = []
    hashed: list[Finished] = []
    second: list[Finished] = []
    memory = place / "data" / "work.sealed.json"
    for number in range(arguments.rounds):
        memory.unlink(missing_ok=True)
        first.append(_seal(place, "first.txt"))
        hashed.append(run(["sh", "-c", f"zcat {runs}/*.gz | sha256sum"], place))
        head = _gathered(place, FIRST + 86400 * (number + 1), arguments.night, head)
        second.append(_seal(place, "second.txt"))
    archec(place, "verify", "--seal", "first.txt", "--seal", "second.txt")
    group = f"{arguments.entries:,} entries"
    ours = report.add(group, "first seal", "s", [done.wall for done in first])
    peer = report.add(group, _PEER, "s", [done.wall for done in hashed])
    report.compare(ours, peer, f"first seal / {_PEER}", most=_TIMES)
    after = report.add(group, f"seal after {arguments.night:,} more", "s", [done.wall for done in second])
    report.judge("seal after a night", after.median, "s", most=_AFTERWARDS)
    peak = report.add("memory", "first seal", "MB", [done.peak / 1e6 for done in first])
    report.judge("memory of a seal", peak.median, "MB", most=_PEAK)
    report.add("size", "journal of the first run", "MB", [(runs / f"{FIRST}.jsonl.gz").stat().st_size / 1e6])


def _seal(place: Path, name: str) -> Finished:
    (place / name).unlink(missing_ok=True)
    done, _ = archec(place, "seal", "-o", name, memory=True)
    lines = (place / name).read_text().split("\n")
    if len(lines) < 6 or not lines[1].isdigit():
        raise BenchmarkError(f"{name} is no seal")
    return done


def _gathered(place: Path, tist: int, entries: int, head: str) -> str:
    """Writes the finished journal of a run that noted so many templates; its head."""
    layout = open_layout(place / "archive")
    with JournalWriter(layout, tist, head=head) as journal:
        journal.append([encode(RunStart(tist, form="tarball", source="x.tar"))], tist)
        for start in range(0, entries, _BATCH):
            journal.append([_line(tist, n) for n in range(start, min(start + _BATCH, entries))], tist)
        journal.append([encode(RunEnd(tist, "done", {}))], tist)
        journal.finish()
        return journal.head


def _line(tist: int, number: int) -> bytes:
    data = f"{tist} {number}".encode()
    sha256, handle = sha256_hex(data), f"RePEc:a{number // 5000:05}:sss:{number}"
    refs = (Refipo(f"http://h{number % 997}.example/{number}.pdf", "application/pdf"),)
    version = Version(sha256, md5_hex(data), 900, md5_hex(data), "ReDIF-Paper 1.0", f"A paper, number {number}", refs)
    return encode(ObiChange("tobi", handle, put={tist: sha256}, version=version, notes={tist: Note(tist, "new")}))
