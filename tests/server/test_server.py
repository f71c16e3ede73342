"""The server: what it tells of itself, what it says when something fails, its limits, its end."""

from __future__ import annotations

import dataclasses
import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import pytest
import zstandard
from server_support import LARGE, Sample, connect, is_cut, is_refused, serving
from servers import LOCAL

import archec
from archec.catalogue.engines import open_catalogue
from archec.config import as_yaml, load
from archec.errors import ConfigError
from archec.server.observe import ACCESS_LOG, log_accesses
from archec.server.responses import choose_coding, encode
from archec.server.run import listen
from archec.store.layout import create


def test_health_and_figures() -> None:
    sample = Sample()
    with serving(sample) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        assert client.get("/sample/hello").text == "hello"
        assert client.get("/healthz").json() == {"status": "ok", "version": archec.__version__, "faults": {}}
        sample.fault = "degraded"
        ill = client.get("/healthz")
        assert (ill.status_code, ill.json()["faults"]) == (503, {"sample": "degraded"})
        assert client.get("/nothing/../../etc/passwd").status_code == 404
        first = client.get("/")
        assert (first.status_code, first.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert '<a href="sample">' in first.text
        text = client.get("/metrics").text
    assert 'archec_http_requests_total{part="sample",status="200"} 1.0\n' in text
    assert 'archec_http_requests_total{part="healthz",status="503"} 1.0\n' in text
    assert 'archec_http_requests_total{part="other",status="404"} 1.0\n' in text
    assert "archec_http_requests_active 1.0\n" in text
    assert 'sample_things{what="a \\"b\\"\\n"} 1.5\n' in text
    assert text.count("# TYPE archec_http_request_seconds histogram") == 1
    assert sample.events == ["start", "stop"]


def test_head_and_body_of_a_small_response_are_one_packet() -> None:
    def packets() -> int:
        found: int = struct.unpack_from("I", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 152)[0]
        return found  # tcpi_data_segs_in of linux/tcp.h

    with serving(Sample()) as port, connect(port) as client:
        for count in range(1, 20):
            client.sendall(b"GET /sample/hello HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(65536).endswith(b"\r\n\r\nhello")
            assert packets() == count
        client.sendall(b"GET /sample/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.recv(65536).endswith(b"\r\n\r\nhello")
        assert client.recv(65536) == b""


def test_failures_tell_clients_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Sample()) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}/sample", trust_env=False) as client:
        gone, bad, bug = (client.get(f"/fails/{how}") for how in ("gone", "bad", "bug"))
        assert client.get("/hello").status_code == 200
    assert (gone.status_code, gone.headers["retry-after"]) == (503, "60")
    assert "secret" not in gone.text
    assert (bad.status_code, bad.text) == (400, "not a name\n")
    assert bug.status_code == 500
    assert "KeyError" not in bug.text
    told = [record.getMessage() for record in caplog.records if record.name == "archec.server"]
    assert any("secret host" in one for one in told)
    assert any("/sample/fails/bug failed" in one for one in told)


def test_no_delay_on_any_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """TCP_NODELAY is set where the connection is accepted."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    seen: list[int] = []
    real = HttpToolsProtocol.connection_made

    def look(self: HttpToolsProtocol, transport: object) -> None:
        accepted = transport.get_extra_info("socket")  # type: ignore[attr-defined]
        seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        real(self, transport)  # type: ignore[arg-type]

    monkeypatch.setattr(HttpToolsProtocol, "connection_made", look)
    with serving(Sample()) as port:
        httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)
    assert seen
    assert all(seen)


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [b"GET /" + b"a" * 10_000, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000])
def test_an_endless_head_is_cut(piece: bytes) -> None:
    with serving(Sample()) as port, connect(port) as client:
        client.sendall(piece)
        assert is_refused(client, piece.rpartition(b"\r\n")[2] or b"A: b\r\n" * 1000)


def hello(answers: BinaryIO) -> bytes:
    """Reads an answer of ``/sample/hello``, and returns its first line."""
    first = answers.readline()
    while answers.readline() != b"\r\n":
        pass
    assert answers.read(5) == b"hello"
    return first


def test_a_large_head_is_refused_also_if_it_is_complete() -> None:
    """It may be sent in few pieces, and in one with the end of a request before it."""
    head = b"GET /sample/hello HTTP/1.1\r\nHost: x\r\nA: %b\r\n\r\n"
    with serving(Sample()) as port:
        for before in (b"", b"POST /sample/hello HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"):
            for size, status in ((65_000, b"200"), (66_000, b"431"), (120_000, b"431")):
                with connect(port) as client:
                    client.sendall(before)
                    answers = client.makefile("rb")
                    assert not before or hello(answers).startswith(b"HTTP/1.1 200 ")
                    client.sendall(head % (b"a" * size))
                    assert answers.readline().startswith(b"HTTP/1.1 %b " % status), size


def test_endless_trailers_of_a_body_are_cut() -> None:
    start = b"POST /sample/hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    for begin, piece in ((b"0\r\n", b"A: b\r\n" * 1000), (b"0\r\nA: ", b"b" * 6000), (b"1;", b"a" * 6000)):
        with serving(Sample()) as port, connect(port) as client:
            client.sendall(start + begin)
            assert is_refused(client, piece)


def test_a_client_that_takes_nothing_in_is_cut() -> None:
    with serving(Sample(), config=dataclasses.replace(LOCAL, send_timeout=0.5)) as port, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET /sample/large HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until_idle(port)


def wait_until_idle(port: int) -> None:
    until, metrics = time.monotonic() + 20, f"http://127.0.0.1:{port}/metrics"
    while "archec_http_requests_active 1.0\n" not in httpx.get(metrics, trust_env=False).text:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_connection_that_is_closed_before_an_answer_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Sample()) as port:
        with connect(port) as client:
            client.sendall(b"GET /sample/cut HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
            assert is_cut(client)
        wait_until_idle(port)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_nothing_is_made_for_a_client_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Sample()) as port:
        with connect(port) as client:
            client.sendall(b"GET /sample/endless HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1 << 20)
        wait_until_idle(port)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_client_that_is_gone_before_its_next_request_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """It has sent two requests at once, and takes only a part of the first answer."""
    with serving(Sample()) as port:
        with connect(port) as client:
            client.sendall(b"GET /sample/large HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
            assert client.recv(1)
        wait_until_idle(port)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_large_body_comes_whole_at_any_pace() -> None:
    with serving(Sample()) as port:
        assert httpx.get(f"http://127.0.0.1:{port}/sample/large", trust_env=False).content == LARGE
        with connect(port) as client:
            client.sendall(b"GET /sample/large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            size = 0
            while data := client.recv(1 << 16):
                size += len(data)
            assert size > len(LARGE)


def test_too_many_connections() -> None:
    with serving(Sample(), config=dataclasses.replace(LOCAL, max_connections=3)) as port:
        clients = [connect(port) for _ in range(3)]
        for client in clients:
            client.sendall(b"GET /sample/hello HTTP/1.1\r\nHost: x\r\n\r\n")
        assert any(b" 503 " in client.recv(1000) for client in clients)
        for client in clients:
            client.close()


def test_nonsense_is_refused() -> None:
    with serving(Sample()) as port, connect(port) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01 not HTTP\r\n\r\n")
        assert b" 400 " in client.recv(1000)


@pytest.mark.parametrize(
    ("lines", "status"), [("1.1\r\n", 400), ("1.1\r\nHost: a\r\nHost: b\r\n", 400), ("1.0\r\n", 200)]
)
def test_a_request_names_one_host(lines: str, status: int) -> None:
    with serving(Sample()) as port, connect(port) as client:
        client.sendall(f"GET /sample/hello HTTP/{lines}\r\n".encode())
        assert f" {status} ".encode() in client.recv(1000)


@pytest.mark.slow
def test_ten_thousand_connections_cost_bounded_memory() -> None:
    """In a process of its own: each end of a connection takes a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 11_000:
        pytest.skip(f"a process may open {hard} files only")
    script = (
        "import dataclasses, sys; from server_support import *\n"
        "config = dataclasses.replace(LOCAL, max_connections=12_000, idle_timeout=120)\n"
        "with serving(Sample(), config=config) as port: print(port, flush=True); sys.stdin.read()"
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (11_000, hard))
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here}:{here.parent}:{Path(archec.__file__).parents[1]}"}
    command = [sys.executable, "-c", script]
    try:
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            port = int(process.stdout.readline())
            before = rss(process.pid)
            clients = [connect(port) for _ in range(10_000)]
            for client in clients:
                client.sendall(b"GET /sample/hello HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 2000)
            assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, timeout=60).status_code == 200
            assert rss(process.pid) - before < 400_000_000
            for client in clients:
                client.close()
            process.stdin.close()
            assert process.wait(60) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def rss(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- start and end --------------------------------------------------------------------------------


def test_a_port_that_is_taken() -> None:
    with listen(LOCAL) as taken, pytest.raises(ConfigError, match="cannot listen on"):
        listen(dataclasses.replace(LOCAL, port=taken.getsockname()[1]))


@pytest.fixture
def ipv6() -> None:
    """Skips a test where there is no IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.usefixtures("ipv6")
@pytest.mark.parametrize("host", ["::", "[::1]", "::1"])
def test_addresses_of_ipv6_with_and_without_brackets(host: str) -> None:
    with serving(Sample(), config=dataclasses.replace(LOCAL, host=host)) as port:
        assert httpx.get(f"http://[::1]:{port}/healthz", trust_env=False).status_code == 200


@pytest.mark.parametrize("host", ["*", "0.0.0.0"])
def test_all_addresses(host: str) -> None:
    with listen(dataclasses.replace(LOCAL, host=host)) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


def test_an_empty_host_is_not_all_addresses() -> None:
    with pytest.raises(ConfigError, match="is empty"):
        listen(dataclasses.replace(LOCAL, host=""))


@pytest.mark.usefixtures("ipv6")
def test_a_name_of_ipv6_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = socket.getaddrinfo

    def of_ipv6(host: str, *words: Any, **options: Any) -> Any:
        return found("::1" if host == "six.example" else host, *words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", of_ipv6)
    with listen(dataclasses.replace(LOCAL, host="six.example")) as listener:
        assert listener.family == socket.AF_INET6


@pytest.mark.usefixtures("ipv6")
def test_a_client_and_a_proxy_of_ipv4_are_that_on_a_socket_of_ipv6(tmp_path: Path) -> None:
    config = dataclasses.replace(LOCAL, host="::", trusted_proxies=("127.0.0.1/32",))
    try:
        log_accesses("access.log", tmp_path)
        with serving(Sample(), config=config) as port:
            for headers in ({}, {"X-Forwarded-For": "192.0.2.7"}):
                httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, headers=headers)
        lines = (tmp_path / "access.log").read_text().splitlines()
    finally:
        log_accesses("", tmp_path)
    assert [line.split()[0] for line in lines] == ["127.0.0.1", "192.0.2.7"]


def test_access_log_to_a_file(tmp_path: Path) -> None:
    try:
        log_accesses("access.log", tmp_path)
        with serving(Sample()) as port:
            httpx.get(f"http://127.0.0.1:{port}/healthz?a=%22", trust_env=False)
        logging.getLogger("archec.access.gate").error("no request")
        (line,) = (tmp_path / "access.log").read_text().splitlines()
        assert '"GET /healthz?a=%22 HTTP/1.1" 200 ' in line
    finally:
        log_accesses("", tmp_path)
    assert not ACCESS_LOG.isEnabledFor(logging.INFO)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGHUP])
def test_the_command_serves_and_stops_gracefully(tmp_path: Path, stop: signal.Signals) -> None:
    (tmp_path / "config.yaml").write_text(as_yaml({"server.port": 0, "server.url": "http://127.0.0.1"}))
    create(tmp_path / "archive")
    (tmp_path / "data").mkdir()
    config = load(tmp_path / "config.yaml", environ={})
    open_catalogue(config.database, base=tmp_path, create=True).close()
    environment = {**os.environ, "PYTHONPATH": str(Path(archec.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "archec", "serve"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        url, told = "", []
        for line in process.stderr:
            told.append(line)
            url = line.strip().removeprefix("archec: serving ") if "serving" in line else url
            if "startup complete" in line:
                break
        assert httpx.get(f"{url}?verb=Identify", trust_env=False).status_code == 200
        process.send_signal(stop)
        out, _ = process.communicate(timeout=20)
        assert process.returncode == 0
        assert "GET /oai?verb=Identify" in out
        assert "the host 127.0.0.1 cannot be the domain of identifiers: set oai.repositoryIdentifier" in "".join(told)
    assert (tmp_path / "data" / "oai.secret").stat().st_mode & 0o777 == 0o600


def test_requests_in_work_are_finished() -> None:
    import threading

    sample = Sample()
    answers: list[str] = []
    with serving(sample) as port:
        url = f"http://127.0.0.1:{port}/sample/slow"
        thread = threading.Thread(target=lambda: answers.append(httpx.get(url, trust_env=False, timeout=20).text))
        thread.start()
        while "slow" not in sample.events:
            time.sleep(0.01)
        threading.Timer(0.5, sample.wait.set).start()
    thread.join()
    assert answers == ["done"]
    assert sample.events == ["start", "slow", "stop"]


def test_a_stalled_client_delays_the_end_for_a_while_only() -> None:
    with socket.socket() as client:
        with serving(Sample(), config=dataclasses.replace(LOCAL, stop_timeout=1.0)) as port:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET /sample/large HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1)
            began = time.monotonic()
        assert time.monotonic() - began < 8


def test_codings() -> None:
    body = b"<a>" * 1000
    packed = {coding: encode(body, coding) for coding in ("zstd", "gzip", "deflate")}
    assert zlib.decompress(packed["gzip"][0], 31) == zlib.decompress(packed["deflate"][0]) == body
    assert zstandard.ZstdDecompressor().decompress(packed["zstd"][0]) == body
    assert {coding: name for coding, (_, name) in packed.items()} == {coding: coding for coding in packed}
    assert encode(body, "") == (body, "")
    assert encode(b"short", "gzip") == (b"short", "")
    assert choose_coding("gzip;q=1.0, zstd;q=0.5") == "gzip"
