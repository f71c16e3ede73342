"""What the operator denies: hosts with all below them, patterns of URLs, networks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from archec.config import Config, parse
from archec.errors import ConfigError
from archec.web.guard import Guard
from archec.web.outcome import Denied, Outcome
from archec.web.policy import Deny


def config(text: str) -> Config:
    return parse(text, Path("config.yaml"))


RULES = """
fetch:
  deny:
    - {hosts: [Example.org, "[2001:db8::1]"], reason: asked by mail}
    - {urls: "http://*/private/*"}
    - {networks: [192.0.2.0/24, "2001:db8::/32"], reason: theirs}
"""


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.org/", "asked by mail"),
        ("https://example.org:8443/x", "asked by mail"),
        ("ftp://a.b.example.org/x", "asked by mail"),
        ("http://[2001:db8::1]:8080/x", "asked by mail"),
        ("http://notexample.org/", ""),
        ("http://example.org.uk/", ""),
        ("http://a.edu/private/x", "by fetch.deny"),
        ("http://a.edu/PRIVATE/x", "by fetch.deny"),
        ("https://a.edu/private/x", ""),
        ("http://a.edu/privates", ""),
        ("http://example.org./", "asked by mail"),
        ("http://a.example.org.:8080/x", "asked by mail"),
        ("http://a.edu./private/x", "by fetch.deny"),
        ("mailto:x", ""),
    ],
)
def test_urls(url: str, reason: str) -> None:
    assert Deny(config(RULES).fetch.deny).reason(url) == reason


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        ("http://example.org:80/a/*", "http://example.org/a/b"),
        ("http://example.org", "http://example.org/"),
        ("http://example.org./*", "http://example.org/a"),
        ("http://example.org/%*", "http://example.org/%2F"),
        ("http://example.org:80/a*%2*", "http://example.org/ab%2Fc"),
        ("HTTP://Example.org/%7euser/*", "http://example.org/~user/x"),
        ("https://Bücher.example/é*", "https://xn--bcher-kva.example/%C3%A9t%C3%A9"),
        ("http*://example.org/?a=*", "https://example.org/?a=b"),
        ("*.pdf", "ftp://example.org/x.PDF"),
    ],
)
def test_patterns_are_compared_as_urls_are_kept(pattern: str, url: str) -> None:
    assert Deny(config(f"fetch: {{deny: [{{urls: ['{pattern}']}}]}}").fetch.deny).reason(url)


def test_addresses() -> None:
    class Resolver:
        async def resolve(self, host: str, port: int) -> Sequence[str]:
            return {"one": ("192.0.2.1",), "two": ("::ffff:192.0.2.1", "198.41.0.4")}[host]

    guard = Guard(Resolver(), (), Deny(config(RULES).fetch.deny))
    assert asyncio.run(guard.resolve("two", 80)) == ["198.41.0.4"]
    with pytest.raises(Denied) as raised:
        asyncio.run(guard.resolve("one", 80))
    assert (raised.value.outcome, raised.value.message) == (Outcome.DENIED, "one is 192.0.2.1: theirs")


@pytest.mark.parametrize("text", ["a", "[a]", "[{host: [a]}]", "[{networks: [a.b]}]", "[{hosts: {a: b}}]"])
def test_what_is_not_understood(text: str) -> None:
    with pytest.raises(ConfigError, match="deny"):
        config(f"fetch: {{deny: {text}}}")
