"""What the server sends and takes is as large as it likes: its memory does not grow with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from access_support import WRITER, client, configured, give_tokens
from test_access_serve import served

pytestmark = pytest.mark.slow

SIZE = 300 << 20
ROWS = 1_000_000
LEEWAY = 48 << 20
"""What the memory of a process may grow by: buffers of sockets and files, what is sorted in memory."""
S = "20140101000000"


def record(folder: Path) -> int:
    """Writes a WARC file with one large record; its length."""
    http = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: %d\r\n\r\n" % SIZE
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Target-URI: http://a.org/\r\n"
        f"WARC-Date: 2014-01-01T00:00:00Z\r\nContent-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(http) + SIZE}\r\n\r\n"
    ).encode()
    with (folder / "a.warc").open("wb") as file:
        file.write(head + http)
        for _ in range(SIZE >> 20):
            file.write(bytes(1 << 20))
        file.write(b"\r\n\r\n")
        return file.tell()


@pytest.fixture
def base(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A server in a process of its own, and its peak of memory before anything was asked."""
    length = record(tmp_path)
    place = f'"length": "{length}", "offset": "0", "filename": "a.warc"'
    (tmp_path / "a.cdxj").write_text(f'org,a)/ {S} {{"url": "http://a.org/", "mime": "a/b", {place}}}\n')
    with (tmp_path / "many.cdxj").open("w") as file:
        for n in range(ROWS):
            file.write(f'org,many)/{n:09d} {S} {{"url": "http://many.org/{n:09d}", "mime": "a/b"}}\n')
    give_tokens(configured(tmp_path, "collections: {a: {index: a.cdxj, resource: .}, many: many.cdxj, fed: ./fed}"))
    with served(tmp_path) as (url, _), client(url, WRITER) as get:
        while get.get("/many/index?url=many.org/000000001").status_code != 200:
            time.sleep(0.1)
        yield url, int(url.rpartition(":")[2])


@contextmanager
def flat(port: int) -> Iterator[None]:
    """Nothing that is done makes the process that listens at a port larger than :data:`LEEWAY`."""
    process = listener(port)
    (process / "clear_refs").write_text("5")  # the peak begins again
    before = peak(process)
    yield
    assert peak(process) - before < LEEWAY


def listener(port: int) -> Path:
    """The folder in /proc of the child that listens at a port."""
    inode = next(
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    )
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(one) == f"socket:[{inode}]" for one in (process / "fd").iterdir()):
                return process
        except OSError:
            continue
    raise AssertionError("nobody listens")


def peak(process: Path) -> int:
    lines = (process / "status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


def drained(port: int, path: str, *, pause: float = 0.0) -> int:
    """The bytes of an answer, read slowly where there is a pause."""
    asked = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WRITER}\r\nConnection: close\r\n\r\n"
    size = 0
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(asked.encode())
        while data := connection.recv(1 << 20):
            size += len(data)
            time.sleep(pause)
    return size


def test_records_and_indexes_stream_out(base: tuple[str, int]) -> None:
    _, port = base
    with flat(port):
        for path in ("/a/resource?url=a.org", f"/a/{S}id_/http://a.org/"):
            assert drained(port, path) > SIZE
        for order in ("", "&sort=reverse"):
            assert drained(port, f"/many/index?url=many.org/*&limit={ROWS}{order}") > ROWS * 100
        assert drained(port, "/a/resource?url=a.org", pause=0.001) > SIZE
        assert drained(port, f"/cdx/search/cdx?url=many.org/*&collection=many&gzip=false&limit={ROWS}") > ROWS * 50


def test_rows_and_requests_stream_in(base: tuple[str, int]) -> None:
    url, port = base

    def lines() -> Iterator[bytes]:
        for n in range(0, ROWS, 1000):
            yield b"".join(b"- %s http://f.org/%d a/b 200 A - - 1 %d a.warc\n" % (S.encode(), i, i)
                           for i in range(n, n + 1000))  # fmt: skip

    def request() -> Iterator[bytes]:
        yield b"POST /\r\nContent-Type: a/b\r\n\r\n"
        for _ in range(SIZE >> 20):
            yield bytes(1 << 20)

    with client(url, WRITER) as get, flat(port):
        assert get.post("/fed", content=lines(), timeout=None).text == f"Added {ROWS} records\n"
        assert get.post("/fed/delete", content=lines(), timeout=None).text == f"Deleted {ROWS} records\n"
        assert get.post("/a/resource-post?url=http://x.org/", content=request(), timeout=None).status_code == 404


def test_an_index_is_sorted_in_little_memory(tmp_path: Path) -> None:
    with (tmp_path / "b.cdxj").open("w") as file:
        for n in range(ROWS):
            file.write(f'org,many)/{(n * 7919) % ROWS:09d} {S} {{"url": "http://many.org/", "mime": "{"x" * 60}"}}\n')
    code = (
        "import re, sys; from archec.__main__ import main\n"
        "sys.argv = ['archec', 'access', 'sort', sys.argv[1]]\n"
        "try: main()\n"
        "finally: print(re.search(r'VmHWM:\\s+([0-9]+)', open('/proc/self/status').read())[1])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "b.cdxj")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) * 1024 < 200 << 20
