"""'archec serve' with collections alone: no archive is needed, and none is made."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from access_support import client, configured, give_tokens, line, write_index
from click.testing import CliRunner

from archec.cli.access import access

S = "20140101000000"


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[str, list[str]]]:
    """The base URL of a server, and what it said when it started."""
    command = [sys.executable, "-m", "archec", "serve", "--port", "0", *options]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said: list[str] = []
        try:
            for text in process.stderr:
                said.append(text.strip())
                if found := re.search("serving (http://[^/]*)/", text):
                    break
            assert found, said
            yield found[1], said
        finally:
            process.send_signal(signal.SIGINT)
            process.stderr.read()


def test_a_server_needs_no_archive(tmp_path: Path) -> None:
    write_index(tmp_path / "in" / "a.cdxj", [line("http://a.org/", S)])
    (tmp_path / "warcs").mkdir()
    give_tokens(configured(tmp_path, "collections: {a: ./in, none: ./missing, w: warc+warcs, z: wacz+missing.wacz}"))
    before = sorted(path for path in tmp_path.rglob("*"))
    with served(tmp_path) as (url, said), client(url) as get:
        assert len([text for text in said if "no archive" in text]) == 1
        assert len([text for text in said if "none: " in text and "cannot be found" in text]) == 1
        assert [text for text in said if "source w: " in text and "cannot be found ('archec access index " in text]
        assert [text for text in said if "source z: " in text and "cannot be found" in text]
        assert [httpx.get(f"{url}/oai{path}").status_code for path in ("", "?verb=Identify", "/x")] == [503] * 3
        assert httpx.post(f"{url}/oai", data={"verb": "Identify"}).status_code == 503
        assert get.get("/a/index?url=a.org").text
        assert get.get("/none/index?url=a.org").headers["reserrors"]
        assert httpx.get(f"{url}/healthz").status_code == 200
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_second_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = f"cdx+http://127.0.0.1:{silent.getsockname()[1]}/"
        configured(
            tmp_path, f"collections: {{c: {{index: '{source}', index_timeout: 60}}}}\naccess: {{open: content}}"
        )
        command = [sys.executable, "-m", "archec", "serve", "--port", "0"]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said = (re.search("serving http://[^/]*:([0-9]+)/", text) for text in process.stderr)
            port = next(found[1] for found in said if found)
            with socket.create_connection(("127.0.0.1", int(port))) as client:
                client.sendall(b"GET /c/index?url=a.org HTTP/1.1\r\nHost: a\r\n\r\n")
                with silent.accept()[0]:
                    process.send_signal(signal.SIGINT)
                    assert any("force quit" in text for text in process.stderr)
                    process.send_signal(signal.SIGINT)
                    rest = process.stderr.read()
    assert "Finished server process" in rest
    assert "Traceback" not in rest


def test_a_configuration_of_pywb_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_index(tmp_path / "collections" / "one" / "indexes" / "a.cdxj", [line("http://a.org/", S)])
    (tmp_path / "pywb.yaml").write_text("collections: {every: $all}\ndebug: true\nframed_replay: true\n")
    (tmp_path / "empty").mkdir()
    config = configured(tmp_path, "access: {open: metadata}")
    monkeypatch.chdir(tmp_path / "empty")
    options = ["--pywb", "../pywb.yaml", "--config", str(config.file)]
    token = CliRunner().invoke(access, ["token", "create", "x", "--collection", "every", *options]).stdout.strip()
    listed = CliRunner().invoke(access, ["token", "list", "--pywb", "../pywb.yaml"])  # without another configuration
    assert listed.stdout == "x: metadata, content; every\n"
    with served(tmp_path / "empty", *options) as (url, said), client(url, token) as get:
        assert [get.get(f"/{coll}").status_code for coll in ("every", "one")] == [200, 404]
        assert [text for text in said if "debug" in text] == [text for text in said if "framed_replay" in text]
        assert len([text for text in said if "debug" in text]) == 1
        for coll in ("one", "every"):
            assert httpx.get(f"{url}/{coll}/index?url=a.org").text
    with served(tmp_path / "empty", "--pywb", "../pywb.yaml") as (url, _), client(url, token) as get:
        assert get.get("/every/index?url=a.org").text
    assert os.listdir(tmp_path / "empty") == []
