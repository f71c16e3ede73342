"""The examples of docs/access.md are read as configurations, and what is under way ends with its token."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest
from access_support import READER, configured, give_tokens, serving, write_index
from click.testing import CliRunner
from warc_files import Crawl

from archec.cli.access import access
from archec.config import parse

DOCS = (Path(__file__).parents[2] / "docs" / "access.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return [part.partition("```")[0] for part in DOCS.split(f"```{kind}\n")[1:]]


@pytest.mark.parametrize("number", range(len(blocks("yaml"))))
def test_examples_of_configurations_are_accepted(number: int, tmp_path: Path) -> None:
    config = parse(blocks("yaml")[number], tmp_path / "config.yaml")
    assert config.collections or config.access.rules


def test_examples_of_commands_are_accepted() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [line.split() for line in lines if line.startswith("archec access")]
    assert len(commands) >= 6
    for command in commands:
        words = [word for word in command[2:] if not word.startswith("#")]
        depth = 2 if words[0] == "token" else 1
        run = CliRunner().invoke(access, [*words[:depth], "--help"])
        assert run.exit_code == 0
        for option in (word for word in words if word.startswith("--")):
            assert option in run.output


def test_what_is_under_way_ends_soon_after_its_token(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path / "w" / "a.warc", gzip=False)
    crawl.response("http://a.org/", "20140101000000", bytes(64 << 20))
    write_index(tmp_path / "a.cdxj", crawl.close())
    config = configured(tmp_path, "collections: {a: {index: a.cdxj, resource: ./w}}")
    give_tokens(config)
    with serving(config) as url, socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as client:
        request = f"GET /a/resource?url=a.org HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {READER}\r\n\r\n"
        client.sendall(request.encode())
        received = len(client.recv(65536))
        run = CliRunner().invoke(access, ["token", "revoke", "reader", "--config", str(config.file)])
        assert run.exit_code == 0, run.output
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65536):  # slowly: all of it would take half a minute
                received += len(data)
                time.sleep(0.03)
        assert time.monotonic() - began < 10
        assert received < 64 << 20
