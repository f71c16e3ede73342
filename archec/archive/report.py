"""The report of a run: counted while it runs, printed and journalled at its end. It includes counts by host."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET, Struct, UnsetType, to_builtins

from archec.catalogue.journal_lines import ObiChange, Record
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


class HostFigures(Struct, frozen=True):
    """Counts of one host: visits, deferred files, visits by outcome, deferred files by reason."""

    host: str
    visits: int = 0
    deferred: int = 0
    outcomes: dict[str, int] = {}
    reasons: dict[str, int] = {}

    @property
    def faults(self) -> int:
        """Visits that failed because of the host."""
        return sum(count for outcome, count in self.outcomes.items() if outcome in FAULTS)

    @property
    def in_trouble(self) -> bool:
        """Whether files were deferred, or at least half of the visits failed because of the host."""
        return bool(self.deferred or (self.visits and 2 * self.faults >= self.visits))


class HostsFigures(Struct, frozen=True):
    """How many hosts were visited and are in trouble, what most visits to each came to, the worst of those in trouble,
    and those with the most visits."""

    visited: int = 0
    in_trouble: int = 0
    by_outcome: dict[str, int] = {}
    trouble: list[HostFigures] = []
    largest: list[HostFigures] = []


class DataSetFigures(Struct, frozen=True):
    """The data set of a run; the same as in :class:`Report`."""

    tist: int = 0
    time: str = ""
    kind: str = ""
    source: str = ""
    whole: bool = False
    complete: bool = False
    merged: bool = False


class FileFigures(Struct, frozen=True):
    """The files of a data set; ``others`` are the paths of the first of the other files."""

    read: int = 0
    unreadable: int = 0
    bytes: int = 0
    other: int = 0
    others: list[str] = []


class TemplateFigures(Struct, frozen=True):
    total: int = 0
    by_type: dict[str, int] = {}
    without_handle: int = 0
    duplicates: int = 0
    conflicts: int = 0


class FetchFigures(Struct, frozen=True):
    """Requests, bytes received, and deferred files by reason."""

    requests: int = 0
    bytes: int = 0
    deferred: int = 0
    reasons: dict[str, int] = {}


class ProblemFigures(Struct, frozen=True):
    """All problems by code, and the first ones."""

    by_code: dict[str, int] = {}
    first: list[Problem] = []


class RunReport(Struct, frozen=True):
    """The report of a run as it is printed and journalled; its JSON form is described in docs/formats.md.

    ``totals`` is the size of the archive at the end of the run, empty before. ``filesets`` is for ingests only.
    """

    run: int = 0
    run_time: str = ""
    state: str = ""
    message: str = ""
    resumed: bool = False
    data_set: DataSetFigures = DataSetFigures()
    files: FileFigures = FileFigures()
    templates: TemplateFigures = TemplateFigures()
    tobis: dict[str, int] = {}
    held_back: dict[str, int] = {}
    not_judged: dict[str, dict[str, int]] = {}
    fobis: dict[str, int] = {}
    fetch: FetchFigures = FetchFigures()
    hosts: HostsFigures = HostsFigures()
    stored_bytes: int = 0
    totals: dict[str, int] = {}
    problems: ProblemFigures = ProblemFigures()
    seconds: dict[str, float] = {}
    filesets: dict[str, int] | UnsetType = UNSET


class Hosts:
    """Running totals by host. Memory is bounded by ``_MOST_HOSTS``."""

    def __init__(self) -> None:
        self._outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._deferred: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def visited(self, host: str, outcome: str, times: int = 1) -> None:
        """Adds visits to files of this host; a negative number subtracts visits."""
        if host not in self._outcomes and len(self._outcomes) >= _MOST_HOSTS:
            return
        found = self._outcomes[host]
        found[outcome] += times
        if not found[outcome]:
            del found[outcome]
        if not found:
            del self._outcomes[host]

    def put_off(self, host: str, why: str, files: int = 1) -> None:
        if host in self._deferred or len(self._deferred) < _MOST_HOSTS:
            self._deferred[host][why] += files

    def restore(self, was: HostsFigures) -> None:
        """Restores the deferred files from before a pause; visits are counted again from the journal."""
        for figures in was.trouble:
            for why, files in figures.reasons.items():
                self.put_off(figures.host, why, files)

    def figures(self) -> HostsFigures:
        """Returns the hosts in trouble, the worst ones first, and those with the most visits."""
        mostly: Counter[str] = Counter()
        trouble: list[HostFigures] = []
        for figures in self._all():
            if figures.outcomes:
                mostly[max(figures.outcomes.items(), key=lambda item: (item[1], item[0]))[0]] += 1
            if figures.in_trouble:
                trouble.append(figures)
        trouble.sort(key=lambda figures: (-figures.faults - figures.deferred, figures.host))
        largest = sorted(self._all(), key=lambda figures: (-figures.visits, figures.host))[:_MOST_LARGE]
        return HostsFigures(
            len(self._outcomes), len(trouble), dict(sorted(mostly.items())), trouble[:_MOST_TROUBLE],
            [figures for figures in largest if figures.visits],
        )  # fmt: skip

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
    totals: dict[str, int] = field(default_factory=dict)
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
            back = outcome == "new" and "returned" in [note.kind for note in record.notes.values()]
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

    def restore(self, was: RunReport) -> None:
        """Restores the counts of the part of the run before a pause; those of visits are restored from the journal,
        with :meth:`visited`."""
        self.whole, self.complete = was.data_set.whole, was.data_set.complete
        self.files, self.unread = was.files.read + was.files.unreadable, was.files.unreadable
        self.read_bytes, self.other_files = was.files.bytes, was.files.other
        self.others += was.files.others
        self.templates.update(was.templates.by_type)
        self.nameless, self.duplicates = was.templates.without_handle, was.templates.duplicates
        self.conflicts = was.templates.conflicts
        self.tobis.update(was.tobis)
        self.held_back.update(was.held_back)
        for archive, words in was.not_judged.items():
            self.not_judged.update({(archive, word): count for word, count in words.items()})
        self.requests, self.fetched_bytes = was.fetch.requests, was.fetch.bytes
        self.deferred.update(was.fetch.reasons)
        self.hosts.restore(was.hosts)
        self.stored_bytes = was.stored_bytes
        self.problem_counts.update(was.problems.by_code)
        self.problems += was.problems.first
        self.seconds.update(was.seconds)

    def _not_judged(self) -> dict[str, dict[str, int]]:
        """The number of handles that the data set does not judge, by archive and reason."""
        value: dict[str, dict[str, int]] = {}
        for (archive, word), count in sorted(self.not_judged.items()):
            value.setdefault(archive, {})[word] = count
        return value

    def figures(self) -> RunReport:
        """Returns the report as it is printed and journalled."""
        return RunReport(
            self.run, iso(self.run), self.state, self.message, self.resumed,
            DataSetFigures(
                self.data_set, iso(self.data_set) if self.data_set else "", self.kind, self.source, self.whole,
                self.complete, self.merged,
            ),
            FileFigures(
                self.files - self.unread, self.unread, self.read_bytes, self.other_files, list(self.others)
            ),
            TemplateFigures(
                self.templates.total(), dict(sorted(self.templates.items())), self.nameless, self.duplicates,
                self.conflicts,
            ),
            tobis={kind: max(self.tobis[kind], 0) for kind in _KINDS},
            held_back=dict(sorted(self.held_back.items())),
            not_judged=self._not_judged(),
            fobis={outcome: count for outcome, count in sorted(self.fobis.items()) if count},
            fetch=FetchFigures(
                self.requests, self.fetched_bytes, self.deferred.total(), dict(sorted(self.deferred.items()))
            ),
            hosts=self.hosts.figures(),
            stored_bytes=self.stored_bytes,
            totals=self.totals,
            problems=ProblemFigures(dict(sorted(self.problem_counts.items())), list(self.problems)),
            seconds={phase: round(seconds, 3) for phase, seconds in self._seconds().items()},
            filesets=dict(sorted(self.filesets.items())) if self.filesets is not None else UNSET,
        )  # fmt: skip

    def as_value(self) -> dict[str, Any]:
        value: dict[str, Any] = to_builtins(self.figures())
        return value


def kept_bytes(record: ObiChange) -> int:
    """Bytes stored for a record: those of a new or changed template or manifest, or of a body under the URL's own
    name."""
    if record.version is None:
        return 0
    if record.kind == "fobi" and (not record.put or any(note.target for note in record.notes.values())):
        return 0
    return record.version.size
