"""The examples of docs/access.md are read as configurations, and what is in progress ends with its token."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from access_support import READER, configured, give_tokens, serving, write_index
from click.testing import CliRunner
from warc_files import Crawl

from archec.cli.access import access


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
        assert time.monotonic() - began < 5
        assert received < 64 << 20
