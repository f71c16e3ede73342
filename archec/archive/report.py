"""The report of a run: counted while it runs, printed and journalled at its end. It includes counts by host."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from archec.catalogue.interface import Counts
from archec.catalogue.records import ObiChange, Record
from archec.ids import host_of
from archec.redif.problems import Problem, brief
from archec.tist import iso

MOST_PROBLEMS = 200
"""Maximum number of problems that are listed; all are counted."""
FAULTS = frozenset(
    ("server-error", "unreachable", "timeout", "truncated", "forbidden", "bad-certificate", "blocked-address")
)
"""Outcomes that are about the host, not about a single file."""
UNANSWERED = frozenset(("unreachable", "timeout", "blocked-address"))
"""The faults for which there was no response at all."""

NOT_ASKED = "not-asked"
"""The reason for deferring a file whose host must not be asked yet, or was not reached before the run gave up."""
_MOST_HOSTS = 50_000
"""Maximum number of hosts that are tracked; visits to further ones are not counted by host."""
_MOST_TROUBLE = 100
_MOST_LARGE = 30
_KINDS = ("new", "changed", "cosmetic", "file-url", "returned", "same", "moved", "withheld", "lost", "held_back")
_LONGEST_PATH = 1000
_LONGEST_MESSAGE = 600


class Totals(NamedTuple):
    """The size of the archive at the end of a run: bytes written to the obi store by all runs so far, and obis."""

    stored_bytes: int
    obis: Counts

    def as_value(self) -> dict[str, int]:
        """The totals as JSON values."""
        return {"stored_bytes": self.stored_bytes, **self.obis._asdict()}


class HostFigures(NamedTuple):
    """Counts of one host: visits, deferred files, visits by outcome, deferred files by reason."""

    host: str
    visits: int
    deferred: int
    outcomes: dict[str, int]
    reasons: dict[str, int]

    @classmethod
    def of(cls, value: dict[str, Any]) -> HostFigures:
        """Builds the counts from the JSON value in a report."""
        reasons = dict(value.get("reasons", {}))
        return cls(str(value["host"]), int(value["visits"]), int(value["deferred"]), dict(value["outcomes"]), reasons)

    @property
    def faults(self) -> int:
        """Visits that failed because of the host."""
        return sum(count for outcome, count in self.outcomes.items() if outcome in FAULTS)

    @property
    def in_trouble(self) -> bool:
        """Whether files were deferred, or at least half of the visits failed because of the host."""
        return bool(self.deferred or (self.visits and 2 * self.faults >= self.visits))


class Hosts:
    """Running totals by host. Memory is bounded by ``_MOST_HOSTS``."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Counter[str]] = {}
        self._deferred: dict[str, Counter[str]] = {}

    def visited(self, host: str, outcome: str, times: int = 1) -> None:
        """Adds visits to files of this host; a negative number subtracts visits."""
        found = self._outcomes.get(host)
        if found is None:
            if len(self._outcomes) >= _MOST_HOSTS:
                return
            found = self._outcomes[host] = Counter()
        found[outcome] += times
        if not found[outcome]:
            del found[outcome]
        if not found:
            del self._outcomes[host]

    def put_off(self, host: str, why: str, files: int = 1) -> None:
        """Counts deferred files of this host."""
        if host in self._deferred or len(self._deferred) < _MOST_HOSTS:
            self._deferred.setdefault(host, Counter())[why] += files

    def restore(self, value: dict[str, Any]) -> None:
        """Restores the deferred files from before a pause; visits are counted again from the journal."""
        for item in value.get("trouble", ()):
            for why, files in item.get("reasons", {}).items():
                self.put_off(item["host"], why, files)

    def as_value(self) -> dict[str, Any]:
        """The hosts in trouble (the worst ones first) and those with the most visits, as JSON values."""
        mostly: Counter[str] = Counter()
        trouble: list[HostFigures] = []
        for figures in self._all():
            if figures.outcomes:
                mostly[max(figures.outcomes.items(), key=lambda item: (item[1], item[0]))[0]] += 1
            if figures.in_trouble:
                trouble.append(figures)
        trouble.sort(key=lambda figures: (-figures.faults - figures.deferred, figures.host))
        largest = sorted(self._all(), key=lambda figures: (-figures.visits, figures.host))[:_MOST_LARGE]
        return {
            "visited": len(self._outcomes),
            "in_trouble": len(trouble),
            "by_outcome": dict(sorted(mostly.items())),
            "trouble": [figures._asdict() for figures in trouble[:_MOST_TROUBLE]],
            "largest": [figures._asdict() for figures in largest if figures.visits],
        }

    def _all(self) -> Iterable[HostFigures]:
        for host in self._outcomes.keys() | self._deferred.keys():
            outcomes: Mapping[str, int] = self._outcomes.get(host, {})
            reasons: Mapping[str, int] = self._deferred.get(host, {})
            yield HostFigures(
                host, sum(outcomes.values()), sum(reasons.values()),
                dict(sorted(outcomes.items())), dict(sorted(reasons.items())),
            )  # fmt: skip


@dataclass(slots=True)
class Report:
    """Running totals of one run. Durations are in seconds, sizes in bytes. ``deferred`` counts files that are deferred
    to the next run, by reason: an outcome or :data:`NOT_ASKED`. ``filesets`` counts the results of an ingest by status.
    ``resumed``: an earlier command started the run. ``merged``: its data set has been read and merged."""

    run: int
    data_set: int
    kind: str
    source: str
    state: str = "running"
    whole: bool = True
    complete: bool = False
    files: int = 0
    unread: int = 0
    other_files: int = 0
    others: list[str] = field(default_factory=list)
    read_bytes: int = 0
    templates: Counter[str] = field(default_factory=Counter)
    nameless: int = 0
    duplicates: int = 0
    conflicts: int = 0
    tobis: Counter[str] = field(default_factory=Counter)
    held_back: dict[str, int] = field(default_factory=dict)
    not_judged: Counter[tuple[str, str]] = field(default_factory=Counter)
    fobis: Counter[str] = field(default_factory=Counter)
    deferred: Counter[str] = field(default_factory=Counter)
    hosts: Hosts = field(default_factory=Hosts)
    requests: int = 0
    fetched_bytes: int = 0
    stored_bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    problem_counts: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    message: str = ""
    totals: Totals | None = None
    filesets: dict[str, int] | None = None
    resumed: bool = False
    merged: bool = False
    phase: str = ""
    began: float = 0.0

    @property
    def resumable(self) -> bool:
        """Whether the run can be resumed if it stops now. A partly read directory cannot be: it may change."""
        return self.merged or self.kind == "tarball"

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the time spent in the block to a phase."""
        self.phase, self.began = phase, time.monotonic()
        try:
            yield
        finally:
            self.seconds, self.phase = self._seconds(), ""

    def _seconds(self) -> dict[str, float]:
        """The seconds of all phases, including the current one."""
        if not self.phase:
            return self.seconds
        lasted = time.monotonic() - self.began
        return {**self.seconds, self.phase: self.seconds.get(self.phase, 0.0) + lasted}

    def visited(self, record: ObiChange, times: int = 1) -> None:
        """Counts a visit to a file (outcome, host, whether a template names it) and what it noted. A returned file
        counts as ``returned`` and not as ``new``. ``times`` -1 subtracts the visit."""
        if record.visit is not None:
            outcome = record.visit.outcome
            back = outcome == "new" and any(note.kind == "returned" for note in record.notes.values())
            self.fobis["returned" if back else outcome] += times
            if record.visit.unnamed:
                self.fobis["unnamed"] += times
            self.hosts.visited(host_of(record.id), outcome, times)
        for note in record.notes.values():
            if note.kind == "lost":
                self.fobis["lost"] += times
            if note.suspect:
                self.fobis["suspect"] += times

    def forget(self, record: Record) -> None:
        """Subtracts the counts of a template or visit that could not be stored. Its requests and received bytes still
        count."""
        if not isinstance(record, ObiChange):
            return
        self.stored_bytes -= kept_bytes(record)
        if record.kind == "fobi":
            self.visited(record, -1)
        elif self.data_set in record.notes:
            self.tobis[record.notes[self.data_set].kind] -= 1

    def put_off(self, url: str, why: str) -> None:
        """Counts a file that is deferred to the next run, also for its host."""
        self.deferred[why] += 1
        self.hosts.put_off(host_of(url), why)

    def problem(self, problem: Problem) -> None:
        """Counts a problem; keeps the first :data:`MOST_PROBLEMS`, made safe for a terminal and a journal line."""
        self.problem_counts[problem.code] += 1
        if len(self.problems) < MOST_PROBLEMS:
            path, message = brief(problem.path, _LONGEST_PATH), brief(problem.message, _LONGEST_MESSAGE)
            self.problems.append(Problem(path, problem.line, problem.code, message))

    def other_file(self, path: str) -> None:
        """Counts a file that is not a template file; keeps the first :data:`MOST_PROBLEMS` paths."""
        self.other_files += 1
        if len(self.others) < MOST_PROBLEMS:
            self.others.append(brief(path, _LONGEST_PATH))

    def more_problems(self, counts: Mapping[str, int]) -> None:
        """Counts problems by their codes, without details."""
        self.problem_counts.update(counts)

    def restore(self, value: Mapping[str, Any]) -> None:
        """Restores the counts from before a pause, except those of visits, which are counted again from the journal
        with :meth:`visited`."""
        self.whole = bool(value["data_set"]["whole"])
        self.complete = bool(value["data_set"]["complete"])
        self.files = value["files"]["read"] + value["files"]["unreadable"]
        self.unread = value["files"]["unreadable"]
        self.read_bytes = value["files"]["bytes"]
        self.other_files = value["files"]["other"]
        self.others += value["files"]["others"]
        self.templates.update(value["templates"]["by_type"])
        self.nameless = value["templates"]["without_handle"]
        self.duplicates = value["templates"]["duplicates"]
        self.conflicts = value["templates"]["conflicts"]
        self.tobis.update(value["tobis"])
        self.held_back.update(value["held_back"])
        for archive, words in value["not_judged"].items():
            self.not_judged.update({(archive, word): count for word, count in words.items()})
        self.requests = value["fetch"]["requests"]
        self.fetched_bytes = value["fetch"]["bytes"]
        self.deferred.update(value["fetch"].get("reasons", {}))
        self.hosts.restore(value.get("hosts", {}))
        self.stored_bytes = value["stored_bytes"]
        self.problem_counts.update(value["problems"]["by_code"])
        self.problems += [
            Problem(p["path"], p["line"], p["code"], p["message"]) for p in value["problems"]["first"]
        ]
        self.seconds.update(value["seconds"])

    def _not_judged(self) -> dict[str, dict[str, int]]:
        """The number of handles that the data set does not judge, by archive and reason."""
        value: dict[str, dict[str, int]] = {}
        for (archive, word), count in sorted(self.not_judged.items()):
            value.setdefault(archive, {})[word] = count
        return value

    def as_value(self) -> dict[str, Any]:
        """The report as JSON values, as printed by ``archec gather --json`` and journalled."""
        return {
            "run": self.run,
            "run_time": iso(self.run),
            "state": self.state,
            "message": self.message,
            "resumed": self.resumed,
            "data_set": {
                "tist": self.data_set,
                "time": iso(self.data_set),
                "kind": self.kind,
                "source": self.source,
                "whole": self.whole,
                "complete": self.complete,
                "merged": self.merged,
            },
            "files": {
                "read": self.files - self.unread,
                "unreadable": self.unread,
                "bytes": self.read_bytes,
                "other": self.other_files,
                "others": self.others,
            },
            "templates": {
                "total": sum(self.templates.values()),
                "by_type": dict(sorted(self.templates.items())),
                "without_handle": self.nameless,
                "duplicates": self.duplicates,
                "conflicts": self.conflicts,
            },
            "tobis": {kind: max(self.tobis[kind], 0) for kind in _KINDS},
            "held_back": dict(sorted(self.held_back.items())),
            "not_judged": self._not_judged(),
            "fobis": {outcome: count for outcome, count in sorted(self.fobis.items()) if count},
            "fetch": {
                "requests": self.requests,
                "bytes": self.fetched_bytes,
                "deferred": self.deferred.total(),
                "reasons": dict(sorted(self.deferred.items())),
            },
            "hosts": self.hosts.as_value(),
            "stored_bytes": self.stored_bytes,
            "totals": self.totals.as_value() if self.totals is not None else {},
            "problems": {
                "by_code": dict(sorted(self.problem_counts.items())),
                "first": [
                    {"path": p.path, "line": p.line, "code": p.code, "message": p.message}
                    for p in self.problems
                ],
            },
            "seconds": {phase: round(seconds, 3) for phase, seconds in self._seconds().items()},
        } | ({"filesets": dict(sorted(self.filesets.items()))} if self.filesets is not None else {})


def kept_bytes(record: ObiChange) -> int:
    """Bytes stored for a record: those of a new or changed template, or of a body under the URL's own name."""
    if record.version is None:
        return 0
    if record.kind == "fobi" and (not record.put or any(note.target for note in record.notes.values())):
        return 0
    return record.version.size
