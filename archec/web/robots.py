"""robots.txt (RFC 9309): what a host asks of us, read once a run for each origin.

The policy, written down because it decides what is asked of strangers' servers:

* 2xx: the rules in it, as the protego library reads them, for our product token or ``*``.
* 4xx: there are no rules, everything may be fetched. (But 408, 421, 425 and 429 say "not now", and 407
  comes from a proxy: they count as no answer.)
* 5xx, no answer, more than five redirects: nothing is known, so nothing of the origin is fetched
  in this run. This is never treated as leave.
* an address that may not be connected to: the origin's files are refused the same way.
* Crawl-delay (and Request-rate) are kept up to ``fetch.max_delay``; a host that asks for more waits for
  the next run.
* What stands beyond the first 512 kB is not read.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from protego import Protego

from archec.web.outcome import Outcome

__all__ = ["ALLOW_ALL", "Robots", "Rules", "Unknown", "parse", "product_token", "unpack"]

_AGENT_LINE = re.compile(r"^([ \t]*user[- ]?agents?[ \t]*[: \t][ \t]*)([^#\r\n]*)", re.I | re.M)
_LONGEST_LINE = 4096
_MOST_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Rules:
    """What an origin allows. ``delay``: seconds between requests that it asks for."""

    protego: Protego | None
    token: str
    delay: float = 0.0

    def allows(self, url: str) -> bool:
        """Whether our agent may fetch ``url``."""
        if self.protego is None:
            return True
        try:
            return bool(self.protego.can_fetch(url, self.token))
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Unknown:
    """The rules of an origin cannot be had. ``lasting``: nor will they in the next run (a refused address)."""

    outcome: Outcome
    message: str
    lasting: bool = False


Robots = Rules | Unknown

ALLOW_ALL = Rules(None, "")


def product_token(agent: str) -> str:
    """What robots.txt calls us: ``archec`` of ``archec/1.0 (name; contact)``."""
    match = re.match(r"[A-Za-z_-]+", agent)
    return match[0].lower() if match else "archec"


def parse(content: bytes, token: str) -> Rules:
    """The rules in a robots.txt for the product ``token``.

    Groups for other agents are pooled under one name beforehand: a file that names ten thousand agents
    for ten thousand rules would else become their product in memory. Raises ValueError where the
    library gives up.
    """
    text = content.decode("utf-8-sig", "replace").replace("\x00", "")
    lines = [line[:_LONGEST_LINE] for line in text.splitlines()[:_MOST_LINES]]
    text = _AGENT_LINE.sub(lambda match: _pooled(match, token), "\n".join(lines))
    rules = Protego.parse(text)
    delay = float(rules.crawl_delay(token) or 0.0)
    rate = rules.request_rate(token)
    if rate is not None:
        delay = max(delay, rate.seconds / rate.requests)
    return Rules(rules, token, delay)


def _pooled(match: re.Match[str], token: str) -> str:
    agent = match[2].strip().lower()
    name = agent.partition("/")[0].rstrip("*").strip()
    if agent == "*":
        return f"{match[1]}*"
    return f"{match[1]}{token if name == token else 'another'}"


def unpack(content: bytes, encoding: str, limit: int) -> bytes | None:
    """A robots.txt that came compressed though it was not asked to; None where it cannot be read."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return content
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(content, limit)
    except zlib.error:
        return None
