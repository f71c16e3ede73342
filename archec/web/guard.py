"""Which addresses may be connected to: the rule against requests that reach into private networks.

The rule is asked about the address that a socket is really connected to, never about a name, so that
names which resolve to private addresses, names that resolve anew between check and use (DNS rebinding)
and decimal, octal or hexadecimal spellings of an address all meet it. Sources: the IANA special-purpose
address registries (RFC 6890 and updates); an address that is no global unicast address is refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

__all__ = ["Guard", "allowed"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_REFUSED_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network, and "any"
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers (CGNAT)
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, the clouds' metadata service too
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, withdrawn
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOW_32 = 0xFFFFFFFF


def allowed(ip: Address | str, allow_networks: Sequence[Network] = ()) -> bool:
    """Whether ``ip`` may be connected to; what is not an address at all may not.

    An IPv4 address inside an IPv6 one (mapped, NAT64, 6to4, ISATAP) is judged as the IPv4 address. An
    address within one of ``allow_networks`` always may.
    """
    if isinstance(ip, str):
        try:
            ip = ipaddress.ip_address(ip.partition("%")[0])
        except ValueError:
            return False
    if any(ip in network for network in allow_networks):
        return True
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in _REFUSED_4)
    inner = _inner(ip)
    if inner is not None:
        return allowed(inner, allow_networks)
    return ip in _GLOBAL_6 and not any(ip in network for network in _REFUSED_6)


def _inner(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to ``ip`` would reach in the end, None where there is none."""
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    number = int(ip)
    if ip in _NAT64 or (number >> 32) & 0xFCFFFFFF == 0x00005EFE:
        return ipaddress.IPv4Address(number & _LOW_32)
    return None


class Guard:
    """The rule with the networks that an operator opened (``fetch.allow_networks``)."""

    def __init__(self, allow_networks: Sequence[str] = ()) -> None:
        self._networks = tuple(ipaddress.ip_network(text, strict=False) for text in allow_networks)

    def allows(self, address: str) -> bool:
        """Whether a connection to this numeric address may be made or kept."""
        return allowed(address, self._networks)

    @property
    def is_open(self) -> bool:
        """Whether every address is allowed (``0.0.0.0/0`` is among the networks): nothing to check."""
        return any(network.version == 4 and network.prefixlen == 0 for network in self._networks)
