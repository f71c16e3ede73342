"""The robots.txt of each origin: fetched once a run, over the same transport and with the same checks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import httpx

from archec.errors import BadName
from archec.ids import normalise_url
from archec.web.faults import EXPECTED, fault_of
from archec.web.flight import Flight
from archec.web.headers import location_of, raw_headers
from archec.web.outcome import Outcome, of_status
from archec.web.robots import ALLOW_ALL, Robots, Unknown, parse, product_token, unpack
from archec.web.tuning import Tuning
from archec.web.visit import Visitor, close

__all__ = ["Origins"]

_REMEMBERED = 20_000
_TRIES = 2


class Origins:
    """Rules by origin (``http://host:port``)."""

    def __init__(self, visitor: Visitor, agent: str, tuning: Tuning) -> None:
        self._visitor = visitor
        self._token = product_token(agent)
        self._tuning = tuning
        self._known: OrderedDict[str, Robots] = OrderedDict()
        self._asked: dict[str, asyncio.Task[Robots]] = {}

    def known(self, origin: str) -> Robots | None:
        """The rules of an origin where they are known already."""
        return self._known.get(origin)

    async def learn(self, origin: str) -> Robots:
        """The rules of an origin, fetched by whoever asks first; the others wait for the same answer."""
        asked = self._asked.get(origin)
        if asked is None:
            asked = self._asked[origin] = asyncio.ensure_future(self._fetch(origin))
        try:
            robots = await asyncio.shield(asked)
        finally:
            if asked.done():
                self._asked.pop(origin, None)
        self._known[origin] = robots
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return robots

    async def aclose(self) -> None:
        """Gives up what is being asked."""
        for asked in self._asked.values():
            asked.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    async def _fetch(self, origin: str) -> Robots:
        robots: Robots = ALLOW_ALL
        for number in range(_TRIES):
            if number:
                await asyncio.sleep(self._tuning.backoff)
            try:
                robots = await asyncio.wait_for(self._follow(f"{origin}/robots.txt"), self._tuning.robots_timeout)
            except asyncio.TimeoutError:
                robots = Unknown(Outcome.TIMEOUT, f"robots.txt took longer than {self._tuning.robots_timeout:g} s")
            if not isinstance(robots, Unknown) or robots.lasting:
                break
        return robots

    async def _follow(self, url: str) -> Robots:
        try:
            for _ in range(self._tuning.robots_redirects + 1):
                found = await self._hop(url)
                if not isinstance(found, str):
                    return found
                url = normalise_url(found)
        except EXPECTED as error:
            fault = fault_of(error)
            lasting = fault.outcome in (Outcome.BLOCKED_ADDRESS, Outcome.BAD_URL)
            return Unknown(fault.outcome, f"robots.txt cannot be had: {fault.message}", lasting)
        except (BadName, ValueError):
            return ALLOW_ALL  # redirects to nowhere: there is no robots.txt
        return Unknown(Outcome.SERVER_ERROR, f"robots.txt redirects more than {self._tuning.robots_redirects} times")

    async def _hop(self, url: str) -> Robots | str:
        """Rules, or where a redirect leads."""
        flight = Flight(asyncio.get_running_loop().time())
        response = await self._visitor.open(url, flight)
        try:
            status = response.status_code
            fields = raw_headers(response.headers.raw)
            content = await self._read(response)
        finally:
            await close(response)
        if 300 <= status < 400 and fields.get("location"):
            return location_of(url, fields["location"])
        outcome = of_status(status)
        if outcome in (Outcome.SERVER_ERROR, Outcome.UNREACHABLE) or status == 304:
            return Unknown(Outcome.SERVER_ERROR, f"robots.txt cannot be had: HTTP {status}")
        if not 200 <= status < 300:
            return ALLOW_ALL
        text = unpack(content, fields.get("content-encoding", ""), self._tuning.robots_size)
        if text is None:
            return Unknown(Outcome.SERVER_ERROR, "robots.txt came in a coding that was not asked for")
        try:
            return parse(text, self._token)
        except ValueError:
            return Unknown(Outcome.SERVER_ERROR, "robots.txt cannot be read")

    async def _read(self, response: httpx.Response) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.stream:  # type: ignore[union-attr]
            chunks.append(chunk)
            size += len(chunk)
            if size >= self._tuning.robots_size:
                break
        return b"".join(chunks)[: self._tuning.robots_size]
