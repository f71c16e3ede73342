"""Asks hosts for the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing

from archec.config import Config
from archec.web.door import Sender, WebError
from archec.web.headers import http_date

_PATIENCE, _LATECOMERS = 10.0, 1.0
"""Seconds to wait for hosts, and for the remaining ones when enough have answered."""


async def ask_hosts(config: Config, hosts: Sequence[str], enough: int) -> list[float]:
    """The seconds by which those hosts that answer are ahead of this machine."""
    loop, offsets = asyncio.get_running_loop(), list[float]()
    until = loop.time() + _PATIENCE
    async with Sender(config.fetch, config.agent, "fetch") as sender:
        asking = {asyncio.ensure_future(_ahead(sender, host)) for host in hosts}
        while asking and (left := until - loop.time()) > 0:
            done, asking = await asyncio.wait(asking, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            offsets += [ahead for one in done if (ahead := one.result()) is not None]
            if len(offsets) >= enough:
                until = min(until, loop.time() + _LATECOMERS)
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return offsets


async def _ahead(sender: Sender, host: str) -> float | None:
    """The number of seconds by which a host's clock is ahead, or None if the host did not send the time."""
    try:
        async with aclosing(await sender.send("GET", f"http://{host}/robots.txt")) as response:
            date = http_date(response.headers.get("date", ""))
    except WebError:
        return None
    return None if date is None else date - time.time()
