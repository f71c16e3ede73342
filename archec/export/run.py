"""``archec export warc``: the selected units, exported by worker processes, and the summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from archec.archive.opening import Archive, scratch_folder
from archec.catalogue.interface import Catalogue
from archec.config import Config
from archec.export.checking import VaultFault, read_unit, vault_units
from archec.export.observations import collect_visits
from archec.export.units import Selection, Unit, units
from archec.export.vault import open_vault, sweep
from archec.export.writing import MAX_BYTES, ExportPlan, NotExported, UnitResult, unit_exporter
from archec.progress import Meter
from archec.store.layout import Layout
from archec.store.lock import RunLock
from archec.units import human_size
from archec.workers.pool import Pool

_SMALL = 2000
"""Number of obis below which an archive is exported in this process: starting others would take longer."""
_EVERYTHING = 1 << 60
_AHEAD = 6
"""Maximum number of series in progress for each worker."""
_HINT = "possibly out of memory; start the export again"

OnNotExported = Callable[[NotExported | VaultFault], None]


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The contents and the directory of an export.

    ``since`` is the first tist to export. ``dry`` writes nothing. ``revisits`` includes the visits that found files
    unchanged. ``max_bytes`` is the size at which a new WARC file is begun.
    """

    folder: Path
    wanted: Selection = field(default_factory=Selection)
    since: int = 0
    dry: bool = False
    revisits: bool = True
    max_bytes: int = MAX_BYTES


@dataclass(slots=True)
class ExportSummary:
    """The result of an export."""

    vault: str
    dry: bool
    units: int = 0
    changed: int = 0
    records: Counter[str] = field(default_factory=Counter)
    existing: int = 0
    payload: int = 0
    written: int = 0
    files: int = 0
    by_code: Counter[str] = field(default_factory=Counter)
    unnamed: int = 0
    faults: int = 0
    seconds: float = 0.0

    @property
    def failed(self) -> int:
        """Number of observations that were not exported because their bytes are missing or wrong."""
        return self.by_code.total() + self.unnamed

    def add(self, result: UnitResult) -> None:
        """Counts a unit."""
        self.units += 1
        self.changed += bool(result.records)
        self.records.update(result.records)
        self.existing += result.existing
        self.payload += result.payload
        self.written += result.written
        self.files += len(result.files)
        self.by_code.update(failed.code for failed in result.named)
        self.unnamed += result.failed - len(result.named)
        self.faults += len(result.faults)

    def as_value(self) -> dict[str, object]:
        """As JSON, with the keys of docs/export.md."""
        return {
            "vault": self.vault,
            "dry_run": self.dry,
            "series": self.units,
            "changed": self.changed,
            "records": dict(sorted(self.records.items())),
            "existing": self.existing,
            "payload_bytes": self.payload,
            "warc_bytes": self.written,
            "files": self.files,
            "failed": self.failed,
            "by_code": dict(sorted(self.by_code.items())),
            "faults": self.faults,
            "seconds": round(self.seconds, 3),
        }


def export_warc(archive: Archive, request: ExportRequest, meter: Meter, report: OnNotExported) -> ExportSummary:
    """Updates the vault. Calls ``report`` for everything that cannot be exported, as soon as that is known.

    Raises LockHeld if another export writes to this vault, and the exceptions of opening the vault.
    """
    began = time.monotonic()
    config, summary = archive.config, ExportSummary(str(request.folder), request.dry)
    with ExitStack() as stack:
        vault = open_vault(request.folder, archive.layout, dry=request.dry)
        if not request.dry:
            stack.enter_context(RunLock(Layout(vault.root), "export warc"))
            sweep(vault)
        scratch = stack.enter_context(scratch_folder(config))
        position = archive.catalogue.position()
        visits = None
        if request.revisits:
            meter.phase("reading journals", None)
            retracted = archive.catalogue.retracted_runs()
            visits = collect_visits(archive.layout, position, request.since, scratch, meter.at, retracted=retracted)
        plan = ExportPlan(
            archive.layout, config.database, config.base, vault, visits, scratch,
            request.since, position.stamp or position.run, request.dry, request.max_bytes,
        )  # fmt: skip
        try:
            _export_units(config, archive.catalogue, plan, request.wanted, summary, meter, report)
        except BaseException:
            if not request.dry:
                sweep(vault)
            raise
    summary.seconds = time.monotonic() - began
    return summary


@dataclass(slots=True)
class VaultCheck:
    """The result of reading a vault."""

    vault: str
    series: int = 0
    records: int = 0
    bytes: int = 0
    faults: int = 0
    seconds: float = 0.0

    def as_value(self) -> dict[str, object]:
        """As JSON, with the keys of docs/export.md."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


def verify_vault(
    archive: Archive, folder: Path, wanted: Selection, meter: Meter, report: OnNotExported
) -> VaultCheck:
    """Reads every record in the indexes of a vault, and calls ``report`` for every fault; writes nothing."""
    began, done = time.monotonic(), VaultCheck(str(folder))
    vault = open_vault(folder, archive.layout, dry=True)
    meter.phase("reading records", None)
    for unit in vault_units(vault, units(archive.catalogue, wanted)):
        done.series += 1
        for size, fault in read_unit(vault, unit):
            done.records += bool(size)
            done.bytes += size
            if fault is not None:
                done.faults += 1
                report(fault)
            meter.at(done.records, human_size(done.bytes))
    done.seconds = time.monotonic() - began
    return done


def _export_units(
    config: Config,
    catalogue: Catalogue,
    plan: ExportPlan,
    wanted: Selection,
    summary: ExportSummary,
    meter: Meter,
    report: OnNotExported,
) -> None:
    meter.phase("exporting series", None)

    def take(result: UnitResult) -> None:
        summary.add(result)
        for fault in result.faults:
            report(fault)
        for failed in result.named:
            report(failed)
        meter.at(summary.units, f"{sum(summary.records.values()):,} records, {human_size(summary.payload)}")

    counts = catalogue.counts()
    small = counts.tobis_held + counts.tobis_lost + counts.fobis_held < _SMALL
    workers = config.processes
    pool: Pool[Unit, UnitResult] = Pool(
        "archec.export.writing:unit_exporter", [plan], UnitResult,
        workers=workers, here=unit_exporter(plan), inline=_EVERYTHING if small or workers == 1 else 0, prefetch=0,
    )  # fmt: skip
    with pool:
        for unit in units(catalogue, wanted):
            pool.submit(unit)
            for done in pool.results(at_most=_AHEAD * workers):
                take(done.result(_HINT))
        for done in pool.results(at_most=0):
            take(done.result(_HINT))
