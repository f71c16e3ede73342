"""``archec export warc``: all units that are asked for, by worker processes, and what it came to."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from archec.catalogue.interface import Catalogue
from archec.catalogue.sqlite_readonly import unwritable
from archec.config import Config
from archec.export.bodies import Problem
from archec.export.unit import MOST_BYTES, Job, Outcome, Tools, export_unit
from archec.export.units import Selection, units
from archec.export.vault import open_vault, sweep
from archec.export.visits import collect_visits
from archec.gather.lanes import Lanes
from archec.gather.progress import Meter
from archec.store.durable import failure
from archec.store.layout import Layout
from archec.store.lock import RunLock
from archec.units import human_size

__all__ = ["Request", "Summary", "Tell", "export_warc"]

Tell = Callable[[Problem], None]
_SMALL = 2000
"""An archive with fewer templates is exported in this process: starting others would take longer."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be exported, and where to. ``since`` is the first tist that counts; ``dry`` writes nothing;
    ``revisits``: also the visits that found files unchanged; ``most`` bytes in a WARC file."""

    folder: Path
    wanted: Selection = field(default_factory=Selection)
    since: int = 0
    dry: bool = False
    revisits: bool = True
    most: int = MOST_BYTES


@dataclass(slots=True)
class Summary:
    """What an export came to."""

    vault: str
    dry: bool
    units: int = 0
    changed: int = 0
    records: Counter[str] = field(default_factory=Counter)
    there: int = 0
    payload: int = 0
    written: int = 0
    files: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    untold: int = 0
    seconds: float = 0.0

    @property
    def spoilt(self) -> int:
        """Observations whose bytes are missing or wrong: they were not exported."""
        return self.problems.total() + self.untold

    def add(self, outcome: Outcome) -> None:
        """One more unit."""
        self.units += 1
        self.changed += bool(outcome.records)
        self.records.update(outcome.records)
        self.there += outcome.there
        self.payload += outcome.payload
        self.written += outcome.written
        self.files += len(outcome.files)
        self.problems.update(problem.code for problem in outcome.problems)
        self.untold += outcome.spoilt - len(outcome.problems)

    def as_value(self) -> dict[str, object]:
        """As JSON; docs/export.md says what the keys mean."""
        return {
            "vault": self.vault,
            "dry_run": self.dry,
            "series": self.units,
            "changed": self.changed,
            "records": dict(sorted(self.records.items())),
            "there": self.there,
            "payload_bytes": self.payload,
            "warc_bytes": self.written,
            "files": self.files,
            "spoilt": self.spoilt,
            "by_code": dict(sorted(self.problems.items())),
            "seconds": round(self.seconds, 3),
        }


def export_warc(
    config: Config, layout: Layout, catalogue: Catalogue, request: Request, meter: Meter, tell: Tell
) -> Summary:
    """Brings the vault up to what the archive holds; ``tell`` gets what could not be exported, as it comes.

    Raises LockHeld where another export writes to this vault, and what opening the vault raises.
    """
    began = time.monotonic()
    summary = Summary(str(request.folder), request.dry)
    with ExitStack() as stack:
        vault = open_vault(request.folder, layout, dry=request.dry)
        if not request.dry:
            stack.enter_context(RunLock(Layout(vault.root), "export warc"))
            sweep(vault)
        scratch = stack.enter_context(_Scratch(_scratch_parent(config)))
        position = catalogue.position()
        visits = None
        if request.revisits:
            meter.phase("reading journals", None)
            visits = collect_visits(layout, position, request.since, scratch, meter.at)
        tools = Tools(
            layout, config.database, config.base, vault, visits, scratch,
            request.since, position.stamp or position.run, request.dry, request.most,
        )  # fmt: skip
        _units(config, catalogue, tools, request.wanted, summary, meter, tell)
    summary.seconds = time.monotonic() - began
    return summary


def _units(
    config: Config,
    catalogue: Catalogue,
    tools: Tools,
    wanted: Selection,
    summary: Summary,
    meter: Meter,
    tell: Tell,
) -> None:
    meter.phase("exporting series", None)

    def take(outcome: Outcome) -> None:
        summary.add(outcome)
        for problem in outcome.problems:
            tell(problem)
        meter.at(summary.units, f"{sum(summary.records.values()):,} records, {human_size(summary.payload)}")

    counts = catalogue.counts()
    small = counts.tobis_held + counts.tobis_lost + counts.fobis_held < _SMALL
    workers = config.workers or min(4, os.cpu_count() or 1)
    lanes = Lanes(
        export_unit,
        workers=workers,
        inline=1 << 60 if small or workers == 1 else 0,
        died=("a worker process died while it exported a series", "out of memory? start the export again"),
    )
    with lanes:
        try:
            for unit in units(catalogue, wanted):
                lanes.submit(Job(tools, unit), 1)
                for outcome in lanes.results():
                    take(outcome)
            for outcome in lanes.results(last=True):
                take(outcome)
        except BaseException:
            Path(tools.stop).touch()
            raise


def _scratch_parent(config: Config) -> Path:
    """The folder for scratch space; that of temporary files where the archive can only be read."""
    return Path(tempfile.gettempdir()) if unwritable(config.work_path / "scratch") else config.work_path


class _Scratch:
    """A fresh folder for what an export needs meanwhile; removed at the end."""

    def __init__(self, parent: Path) -> None:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self._folder = tempfile.TemporaryDirectory(prefix="export-", dir=parent)
        except OSError as error:
            raise failure(error, parent) from error

    def __enter__(self) -> Path:
        return Path(self._folder.name)

    def __exit__(self, *exc: object) -> None:
        self._folder.cleanup()
