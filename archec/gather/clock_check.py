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
from archec.archive.runs import LEAST_HOSTS, refuse_doubtful_clock
from archec.catalogue.documents import read
from archec.config import Config
from archec.store.layout import JournalFile
from archec.tist import MAX_TIST
from archec.web.messages import http_date

_MOST_HOSTS = 9
_PATIENCE, _LATECOMERS = 10.0, 1.0
"""Seconds to wait for hosts, and for the remaining ones when enough have answered."""
_RUNS = 20
"""Maximum number of runs searched for hosts to ask."""


def check_clock(archive: Archive, before: JournalFile, *, ask: bool) -> None:
    """Raises ArchecError if evidence contradicts the clock by more than a day. ``before`` is the journal of the last
    run; hosts are asked for the time if ``ask`` is set."""
    hosts = list(islice(_hosts(archive), _MOST_HOSTS)) if ask else []
    offsets = _ask_hosts(archive.config, hosts) if len(hosts) >= LEAST_HOSTS else ()
    refuse_doubtful_clock(before, "archec gather", offsets)


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
                if len(offsets) >= LEAST_HOSTS:
                    until = min(until, loop.time() + _LATECOMERS)
            for one in asking:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return offsets

    return asyncio.run(ask())
