"""Through a proxy: forms of requests, credentials, NO_PROXY, and what the guard still refuses."""

from __future__ import annotations

import base64
import dataclasses
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from web_hostile import Hostile, hostile_server
from web_proxyserver import ProxyServer
from web_support import QUICK, fetch, fetch_one, settings
from web_tls import certificate

from archec.config import Denial, FetchConfig
from archec.errors import ConfigError
from archec.web.guard import Connector, Guard
from archec.web.outcome import ConnectError, Outcome
from archec.web.policy import Proxies
from archec.web.tls import Tls
from archec.web.transport import DirectTransport, Transports, transports


class Names:
    """A name service with fixed answers."""

    def __init__(self, **known: str) -> None:
        self.known = {name.replace("_", "."): address for name, address in known.items()}

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        if host[0].isdigit():
            return (host,)
        if host not in self.known:
            raise ConnectError(f"{host} cannot be resolved")
        return (self.known[host],)


NAMES = Names(public_example="93.184.216.34", private_example="10.0.0.1", proxy_example="127.0.0.1")


def real(config: FetchConfig) -> Transports:
    return transports(config, QUICK, 4, NAMES)


@pytest.fixture
def proxy() -> Iterator[ProxyServer]:
    server = ProxyServer()
    try:
        yield server
    finally:
        server.close()


def test_http_goes_through_in_absolute_form(hostile: Hostile, proxy: ProxyServer, tmp_path: Path) -> None:
    config = settings(proxy=f"http://us%40er:pa%3Ass@proxy.example:{proxy.port}", allow_networks=())
    urls = [f"http://public.example:{hostile.port}/ok/{n}%2F?q={n}" for n in range(3)]
    hops = fetch(tmp_path, urls, config, carriers=real(config))
    assert [hop.kind for hop in hops] == ["body"] * 3
    assert sorted(proxy.seen) == [f"GET {url} HTTP/1.1" for url in urls]
    assert "Proxy-Authorization: Basic " + base64.b64encode(b"us@er:pa:ss").decode() in proxy.heads[0]
    assert all("proxy-authorization" not in asked.headers for asked in hostile.asked)


@pytest.mark.parametrize("host", ["10.0.0.1", "private.example", "127.0.0.1", "unknown.example"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_private_hosts_are_not_handed_to_a_proxy(proxy: ProxyServer, tmp_path: Path, host: str, scheme: str) -> None:
    config = settings(proxy=f"http://127.0.0.1:{proxy.port}", allow_networks=(), retries=0)
    hop = fetch_one(tmp_path, f"{scheme}://{host}/x", config, carriers=real(config))
    assert hop.outcome is (Outcome.UNREACHABLE if host == "unknown.example" else Outcome.BLOCKED_ADDRESS)
    assert not proxy.seen


def test_with_every_network_open_the_proxy_resolves(hostile: Hostile, proxy: ProxyServer, tmp_path: Path) -> None:
    config = settings(proxy=f"http://127.0.0.1:{proxy.port}", allow_networks=("0.0.0.0/0",))
    url = f"http://unknown.example:{hostile.port}/ok"
    assert fetch_one(tmp_path, url, config, carriers=real(config)).kind == "body"
    denying = dataclasses.replace(config, deny=(Denial(networks=("10.0.0.0/8",)),))
    for host in ("10.0.0.1", "private.example"):
        assert fetch_one(tmp_path, f"http://{host}/x", denying, carriers=real(denying)).outcome is Outcome.DENIED
    assert len(proxy.seen) == 1


def test_the_environment_names_proxies(
    hostile: Hostile, proxy: ProxyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.2,direct.example")
    hops = fetch(tmp_path, [hostile.url("/ok/1", 1), hostile.url("/ok/2", 2)])
    assert [hop.kind for hop in hops] == ["body", "body"]
    assert proxy.seen == [f"GET {hostile.url('/ok/1')} HTTP/1.1"]


def test_https_goes_through_a_tunnel(proxy: ProxyServer, tmp_path: Path) -> None:
    server_side, client_side = certificate(tmp_path, "127.0.0.1")
    folder = tmp_path / "out"
    folder.mkdir()
    config = settings(proxy=f"http://u:p@127.0.0.1:{proxy.port}")
    with hostile_server(1, server_side) as secure:
        connector = Connector(Guard(NAMES, config.allow_networks), Tls(trust=lambda: client_side))
        web = DirectTransport(connector, Proxies(config.proxy), 8, QUICK)
        carriers = Transports(web, web)
        urls = [secure.url(f"/ok/{n}", scheme="https") for n in range(3)]
        hops = fetch(folder, urls, dataclasses.replace(config, per_host=1), carriers=carriers)
    assert [hop.kind for hop in hops] == ["body"] * 3
    assert proxy.seen == [f"CONNECT 127.0.0.1:{secure.port} HTTP/1.1"]
    assert "Proxy-Authorization: Basic" in proxy.heads[0]


def test_a_tunnel_does_not_make_a_bad_certificate_good(proxy: ProxyServer, tmp_path: Path) -> None:
    server_side, _ = certificate(tmp_path, "127.0.0.1")
    with hostile_server(1, server_side) as secure:
        config = settings(proxy=f"http://127.0.0.1:{proxy.port}")
        hop = fetch_one(tmp_path, secure.url("/ok", scheme="https"), config)
    assert hop.outcome is Outcome.BAD_CERTIFICATE
    assert "certificate" in hop.message


@pytest.mark.parametrize(
    ("scheme", "status", "why"),
    [
        ("http", 407, ""), ("https", 407, ""), ("https", 404, ""),
        ("http", 404, "X-Squid-Error: 404:ERR_ACCESS_DENIED 0\r\n"),
        ("http", 410, "Proxy-Status: gate; error=http_request_denied\r\n"),
    ],
)  # fmt: skip
def test_a_proxy_that_refuses_makes_a_file_unreachable(tmp_path: Path, scheme: str, status: int, why: str) -> None:
    proxy = ProxyServer(refuse=status, why=why)
    try:
        config = settings(proxy=f"http://127.0.0.1:{proxy.port}", retries=0)
        hop = fetch_one(tmp_path, f"{scheme}://127.0.0.1:9/x", config)
    finally:
        proxy.close()
    assert hop.outcome is Outcome.UNREACHABLE
    assert str(status) in hop.message


def test_a_proxy_that_is_not_there(tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, "http://127.0.0.1:9/x", settings(proxy="http://u:secret@127.0.0.1:1", retries=0))
    assert hop.outcome is Outcome.UNREACHABLE
    assert "the proxy 127.0.0.1:1 cannot be reached" in hop.message
    assert "secret" not in hop.message


@pytest.mark.parametrize("setting", ["http://", "http://[x", "http://h:99999", "socks5://h:1"])
def test_a_proxy_that_is_no_url_is_an_operators_error(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"fetch\.proxy"):
        Proxies(setting)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Proxies("http://u:secret@h:1").choose("http", "x"))


@pytest.mark.parametrize("tls", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_is_verified(tmp_path: Path, tls: ssl.TLSVersion) -> None:
    server_side, client_side = certificate(tmp_path, "127.0.0.1")
    server_side.maximum_version = tls
    folder = tmp_path / "out"
    folder.mkdir()
    config = settings(retries=2)
    with hostile_server(1, server_side) as secure:
        url = secure.url("/ok", scheme="https")
        distrusted = fetch_one(folder, url, config)
        connector = Connector(Guard(NAMES, config.allow_networks), Tls(trust=lambda: client_side))
        web = DirectTransport(connector, Proxies(), 8, QUICK)
        urls = [url, secure.url("/until-close", scheme="https")]
        trusted = fetch(folder, urls, config, carriers=Transports(web, web))
        plain = fetch_one(folder, secure.url("/ok"), settings(retries=0, idle_timeout=0.3))
    assert distrusted.outcome is Outcome.BAD_CERTIFICATE
    assert "certificate" in distrusted.message
    assert [hop.kind for hop in trusted] == ["body", "body"]
    assert plain.kind == "failed"


def test_tls_with_a_server_that_has_none(hostile: Hostile, tmp_path: Path) -> None:
    hop = fetch_one(tmp_path, hostile.url("/ok", scheme="https"), settings(retries=0))
    assert hop.outcome in (Outcome.UNREACHABLE, Outcome.TIMEOUT)


@pytest.mark.parametrize("exempt", ["::1", "[::1]", "[::1]:8080"])
def test_an_address_of_ipv6_in_no_proxy(exempt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://[2001:db8::1]:3128")
    monkeypatch.setenv("NO_PROXY", f"localhost,{exempt}")
    proxies = Proxies()
    assert proxies.choose("http", "[::1]:8080") is None
    assert proxies.choose("http", "[::2]:8080") is not None
