"""The rule against private addresses, as a table and as properties."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.config import Denial
from archec.web.guard import Guard, Resolver, allowed
from archec.web.outcome import Blocked
from archec.web.policy import Deny, embedded, plain

REFUSED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1",
    "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250",
    "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1",
    "fd12:3456::1", "ff02::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:10::1", "2001:20::1", "2001:db8::1",
    "3fff::1", "5f00::1", "64:ff9b:1::1", "4000::1", "8000::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::1", "2002:a00:1::",
    "2002:c0a8:101::1", "64:ff9b:1::808:808", "fe80::5efe:8.8.8.8",
    "2a00::5efe:10.0.0.1", "2a00::200:5efe:127.0.0.1", "nonsense", "1.2.3", "1.2.3.4.5",
    "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "",
]  # fmt: skip

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "128.0.0.1",
    "172.15.255.255", "172.32.0.1", "192.167.1.1", "193.0.0.1", "198.17.0.1", "198.20.0.1", "223.255.255.255",
    "2606:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808",
    "2002:808:808::1", "2a00::5efe:8.8.8.8",
]  # fmt: skip


@pytest.mark.parametrize("address", REFUSED)
def test_refused(address: str) -> None:
    assert not allowed(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert allowed(address)


def spellings(ip: ipaddress.IPv4Address) -> dict[str, ipaddress.IPv6Address]:
    """One IPv4 address in every form of IPv6."""
    n = int(ip)
    local = 0x64FF9B0001 << 80
    numbers = {
        "mapped": 0xFFFF << 32 | n, "compatible": n, "nat64": 0x64FF9B << 96 | n, "6to4": 0x2002 << 112 | n << 80,
        "isatap": 0x2A00 << 112 | 0x5EFE << 32 | n, "isatap of a global one": 0x2A00 << 112 | 0x2005EFE << 32 | n,
        "teredo": 0x20010000 << 96 | 0x08080808 << 64 | n ^ 0xFFFFFFFF, "teredo's server": 0x20010000 << 96 | n << 64,
        "local nat64 /96": local | n, "local nat64 /64": local | n << 24,
        "local nat64 /56": local | (n >> 24) << 64 | (n & 0xFFFFFF) << 32,
        "local nat64 /48": local | (n >> 16) << 64 | (n & 0xFFFF) << 40,
    }  # fmt: skip
    return {name: ipaddress.IPv6Address(number) for name, number in numbers.items()}


@given(st.ip_addresses(v=4))
def test_every_spelling_of_an_ipv4_address_is_judged_as_that_address(ip: ipaddress.IPv4Address) -> None:
    deny = Deny([Denial(networks=(f"{ip}/32",), reason="theirs")])
    for name, spelling in spellings(ip).items():
        refused = name.startswith(("compatible", "teredo", "local"))
        assert allowed(spelling) is (allowed(ip) and not refused), name
        assert ip in embedded(spelling), name
        assert deny.reason_of_address(str(spelling)) == "theirs", name
    assert {plain(str(spellings(ip)[name])) for name in ("mapped", "nat64", "6to4", "isatap")} == {plain(str(ip))}


@given(st.ip_addresses(v=6))
def test_whoever_is_denied_nothing_else_is(ip: ipaddress.IPv6Address) -> None:
    deny = Deny([Denial(networks=("192.0.2.0/24",))])
    within = any(inner in ipaddress.ip_network("192.0.2.0/24") for inner in embedded(ip))
    assert bool(deny.reason_of_address(str(ip))) is within


@given(st.ip_addresses(v=4))
def test_nothing_that_python_calls_private_is_allowed(ip: ipaddress.IPv4Address) -> None:
    if allowed(ip):
        assert ip.is_global
        assert not ip.is_multicast


@given(st.ip_addresses(v=6))
def test_nothing_in_ipv6_that_python_calls_private_is_allowed(ip: ipaddress.IPv6Address) -> None:
    if allowed(ip) and ip.ipv4_mapped is None and ip.sixtofour is None:
        assert not any((ip.is_private, ip.is_multicast, ip.is_link_local, ip.is_site_local, ip.is_loopback))


def test_an_operator_opens_networks() -> None:
    guard = Guard(Resolver(1), ["10.1.0.0/16", "fd00::/8", "127.0.0.1"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "127.0.0.1"):
        assert guard.refusal("host", address) is None
    for address in ("10.2.0.1", "127.0.0.2"):
        assert isinstance(guard.refusal("host", address), Blocked)
        assert guard.refusal("host", address, exempt=True) is None
