"""Checks the machine's clock before a run is stamped with it.

A run with a wrong clock would note everything under wrong tists, and files would not be due at the right times. So a
run stops if there is evidence against its clock: the time of web servers, or the time since the machine was booted.
Without either, a jump of more than 90 days counts. A first run has nothing to compare with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import islice

from archec.archive.opening import Archive
from archec.archive.report import RunReport
from archec.archive.runs import clock_of, read_clock
from archec.catalogue.documents import read
from archec.catalogue.journal_lines import ClockReading
from archec.config import Config
from archec.errors import ArchecError
from archec.store.layout import JournalFile
from archec.tist import MAX_TIST, iso
from archec.units import human_duration
from archec.web.messages import http_date

_DAY = 86400
_LEAP = 90 * _DAY
_LEAST_HOSTS, _MOST_HOSTS = 3, 9
_PATIENCE, _LATECOMERS = 10.0, 1.0
"""Seconds to wait for hosts, and for the remaining ones when enough have answered."""
_RUNS = 20
"""Maximum number of runs searched for hosts to ask."""


def check_clock(archive: Archive, before: JournalFile, *, ask: bool) -> None:
    """Raises ArchecError if evidence contradicts the clock by more than a day. ``before`` is the journal of the last
    run; hosts are asked for the time if ``ask`` is set."""
    hosts = list(islice(_hosts(archive), _MOST_HOSTS)) if ask else []
    offsets = _ask_hosts(archive.config, hosts) if len(hosts) >= _LEAST_HOSTS else ()
    doubt = doubt_of(clock_of(before), read_clock(), offsets)
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


def _hosts(archive: Archive) -> Iterator[str]:
    """Hosts that answered in the newest run with any, except those with a pending Retry-After."""
    now = time.time()
    bound = {state.host for state in archive.catalogue.hosts() if state.until > now or state.fails}
    for run in archive.catalogue.newest_runs(MAX_TIST + 1, _RUNS):
        known = read(RunReport, run.report or "{}").hosts.largest
        if known:
            yield from (host.host for host in known if host.faults < host.visits and host.host not in bound)
            return


def _ask_hosts(config: Config, hosts: Sequence[str]) -> list[float]:
    """The seconds by which those hosts that answer are ahead of this machine."""
    import asyncio  # like the client of the web slow to import, and otherwise not needed in this process

    from archec.web.door import Sender, WebError

    async def ahead(sender: Sender, host: str) -> float | None:
        try:
            async with aclosing(await sender.send("GET", f"http://{host}/robots.txt")) as response:
                date = http_date(response.headers.get("date", ""))
        except WebError:
            return None
        return None if date is None else date - time.time()

    async def ask() -> list[float]:
        loop, offsets = asyncio.get_running_loop(), list[float]()
        until = loop.time() + _PATIENCE
        async with Sender(config.fetch, config.agent, "fetch") as sender:
            asking = {asyncio.ensure_future(ahead(sender, host)) for host in hosts}
            while asking and (left := until - loop.time()) > 0:
                done, asking = await asyncio.wait(asking, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                offsets += [seconds for one in done if (seconds := one.result()) is not None]
                if len(offsets) >= _LEAST_HOSTS:
                    until = min(until, loop.time() + _LATECOMERS)
            for one in asking:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return offsets

    return asyncio.run(ask())
