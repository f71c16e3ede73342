"""``archec export warc``: the selected units, exported by worker processes, and the summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from archec.archive.opening import Archive, scratch_folder
from archec.export.checking import VaultFault, read_unit
from archec.export.observations import collect_visits
from archec.export.units import Unit, UnitSelection, units
from archec.export.vault import open_vault, sweep
from archec.export.writing import ExportPlan, ExportRequest, NotExported, UnitResult, export_unit
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


@dataclass(slots=True)
class ExportSummary:
    """The result of an export; docs/export.md says what the fields mean."""

    vault: str
    dry_run: bool
    series: int = 0
    changed: int = 0
    records: Counter[str] = field(default_factory=Counter)
    existing: int = 0
    payload_bytes: int = 0
    warc_bytes: int = 0
    files: int = 0
    failed: int = 0
    by_code: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    seconds: float = 0.0

    def add(self, result: UnitResult) -> None:
        self.series += 1
        self.changed += bool(result.records)
        self.records.update(result.records)
        self.existing += result.existing
        self.payload_bytes += result.payload
        self.warc_bytes += result.written
        self.files += len(result.files)
        self.failed += result.failed
        self.by_code.update(failed.code for failed in result.named)
        self.faults += len(result.faults)

    def as_value(self) -> dict[str, object]:
        counts = {"records": dict(sorted(self.records.items())), "by_code": dict(sorted(self.by_code.items()))}
        return asdict(self) | counts | {"seconds": round(self.seconds, 3)}


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
        state = position.stamp or position.run
        plan = ExportPlan(archive.layout, config.database, config.base, vault, visits, scratch, state, request)
        try:
            meter.phase("exporting series", None)
            with closing(_exported(archive, plan, request.wanted)) as results:
                for result in results:
                    summary.add(result)
                    for fault in result.faults:
                        report(fault)
                    for failed in result.named:
                        report(failed)
                    total = f"{summary.records.total():,} records, {human_size(summary.payload_bytes)}"
                    meter.at(summary.series, total)
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
    archive: Archive, folder: Path, wanted: UnitSelection, meter: Meter, report: OnNotExported
) -> VaultCheck:
    """Reads every record in the indexes of a vault, and calls ``report`` for every fault; writes nothing."""
    began, done = time.monotonic(), VaultCheck(str(folder))
    vault = open_vault(folder, archive.layout, dry=True)
    meter.phase("reading records", None)
    for unit in units(archive.catalogue, wanted):
        if not vault.index_path(unit).exists():
            continue
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


def _exported(archive: Archive, plan: ExportPlan, wanted: UnitSelection) -> Generator[UnitResult, None, None]:
    """The results of exporting the units, as they come."""
    counts = archive.catalogue.counts()
    workers = 1 if archive.catalogue.excludes_others else archive.config.processes
    small = workers == 1 or counts.tobis_held + counts.tobis_lost + counts.fobis_held < _SMALL
    pool: Pool[Unit, UnitResult] = Pool(
        "archec.export.writing:unit_exporter", [plan], UnitResult,
        workers=workers, here=partial(export_unit, plan, archive.catalogue),
        inline=_EVERYTHING if small else 0, prefetch=0,
    )  # fmt: skip
    with pool:
        for unit in units(archive.catalogue, wanted):
            pool.submit(unit)
            for done in pool.results(at_most=_AHEAD * workers):
                yield done.result(_HINT)
        for done in pool.results(at_most=0):
            yield done.result(_HINT)
