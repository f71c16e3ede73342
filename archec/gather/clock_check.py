"""Checks the machine's clock before a run is stamped with it.

A run with a wrong clock would note everything under wrong tists, and files would not be due at the right times. So a
run stops if there is evidence against its clock: the time of web servers, or the time since the machine was booted.
Without either, a jump of more than 90 days counts. A first run has nothing to compare with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from archec.archive.journal_records import records
from archec.archive.opening import Archive
from archec.archive.report import RunReport
from archec.catalogue.documents import read
from archec.catalogue.records import ClockReading, RunStart
from archec.errors import ArchecError
from archec.store.journal_reader import JournalFile
from archec.tist import MAX_TIST, iso
from archec.units import human_duration

_DAY = 86400
_LEAP = 90 * _DAY
_LEAST_HOSTS, _MOST_HOSTS = 3, 9
_RUNS = 20
"""Maximum number of runs searched for hosts to ask."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def read_clock() -> ClockReading:
    """The machine's clock now, and the time since it was booted, if available."""
    try:
        return ClockReading(int(time.time()), _BOOT.read_text().strip(), time.clock_gettime(time.CLOCK_BOOTTIME))
    except (OSError, AttributeError):
        return ClockReading(int(time.time()))


def check_clock(archive: Archive, before: JournalFile, *, ask: bool) -> None:
    """Raises ArchecError if evidence contradicts the clock by more than a day. ``before`` is the journal of the last
    run; hosts are asked for the time if ``ask`` is set."""
    hosts = list(islice(_hosts(archive), _MOST_HOSTS)) if ask else []
    offsets: Sequence[float] = ()
    if len(hosts) >= _LEAST_HOSTS:
        import asyncio  # like the client of the web slow to import, and otherwise not needed in this process

        from archec.gather.host_clocks import ask_hosts

        offsets = asyncio.run(ask_hosts(archive.config, hosts, _LEAST_HOSTS))
    doubt = doubt_of(_reading_of(before), read_clock(), offsets)
    if doubt:
        raise ArchecError(doubt, hint="set the clock; if it is correct, use 'archec gather --trust-clock'")


def doubt_of(before: ClockReading, now: ClockReading, offsets: Sequence[float]) -> str:
    """Why the clock is not trusted; empty if it is. ``offsets`` are seconds by which hosts are ahead of it.

    Hosts give evidence about the clock itself, so they decide if there are at least three. The boot clock only shows
    that this clock, or that of the previous run, was wrong.
    """
    here = f"the clock says {iso(now.time)}"
    if len(offsets) >= _LEAST_HOSTS:
        from statistics import median  # slow to import, for this case only

        ahead = median(offsets)
        return f"{here}, and {len(offsets)} web servers say {_iso(now.time + ahead)}" if abs(ahead) > _DAY else ""
    if now.boot and now.boot == before.boot:
        expected = before.time + now.up - before.up
        if abs(now.time - expected) > _DAY:
            return f"{here}; by the last run, and the time since the machine was booted, it should be {_iso(expected)}"
        return ""
    passed = now.time - before.time
    return f"{here}, {human_duration(passed)} after the last run" if passed > _LEAP else ""


def _iso(moment: float) -> str:
    return iso(int(min(max(moment, 0), MAX_TIST)))


def _reading_of(journal: JournalFile) -> ClockReading:
    """The clock recorded at the beginning of a run, or the run's tist if there is none."""
    start = next(records(journal.path, RunStart), None)
    return (start and start.clock) or ClockReading(journal.tist)


def _hosts(archive: Archive) -> Iterator[str]:
    """Hosts that answered in the newest run with any, except those with a pending Retry-After."""
    now = time.time()
    bound = {state.host for state in archive.catalogue.hosts() if state.until > now or state.fails}
    for run in archive.catalogue.newest_runs(MAX_TIST + 1, _RUNS):
        known = read(RunReport, run.report or "{}").hosts.largest
        if known:
            yield from (host.host for host in known if host.faults < host.visits and host.host not in bound)
            return
