"""What the operator says is not to be fetched (``fetch.deny``), and why."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from archec.config import Denial
from archec.web.guard import Resolver
from archec.web.outcome import Denied

_NO_REASON = "by fetch.deny"


class Deny:
    """Hosts with all below them, patterns of URLs, networks; each with its reason."""

    def __init__(self, denials: Sequence[Denial] = ()) -> None:
        self._hosts = {host: denial.reason or _NO_REASON for denial in denials for host in denial.hosts}
        self._urls = [(_pattern(url), denial.reason or _NO_REASON) for denial in denials for url in denial.urls]
        self._networks = [
            (ipaddress.ip_network(network), denial.reason or _NO_REASON)
            for denial in denials
            for network in denial.networks
        ]

    def reason(self, url: str) -> str:
        """Why a normalised URL is not to be fetched; empty: it may be."""
        if not (self._hosts or self._urls):
            return ""
        name = re.sub(r":[0-9]*\Z", "", url.split("/", 3)[2])
        while name:
            if name in self._hosts:
                return self._hosts[name]
            name = name.partition(".")[2]
        return next((reason for pattern, reason in self._urls if pattern.match(url)), "")

    def reason_of_address(self, address: str) -> str:
        """Why nothing is to be fetched from an address; empty: it may be. A mapped IPv4 address is judged as such."""
        ip = ipaddress.ip_address(address.partition("%")[0])
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return next((reason for network, reason in self._networks if ip in network), "")


def _pattern(url: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, url.split("*"))) + r"\Z", re.I)


class DenyingResolver:
    """A resolver without the addresses that are denied."""

    def __init__(self, resolver: Resolver, deny: Deny) -> None:
        self._resolver, self._deny = resolver, deny

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """See :class:`archec.web.guard.Resolver`. Raises Denied where no other address is left."""
        addresses = await self._resolver.resolve(host, port)
        left = [address for address in addresses if not self._deny.reason_of_address(address)]
        if not left:
            raise Denied(f"{host} is {addresses[0]}: {self._deny.reason_of_address(addresses[0])}")
        return left
