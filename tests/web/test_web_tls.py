"""TLS with old servers, incomplete chains and bad certificates: what is made do with, and what never is."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gather_support import archec_inline, change, check, lines, make, run, write_papers
from warcio.archiveiterator import ArchiveIterator
from web_hostile import Hostile, answer, behaviour, hostile_server
from web_oldtls import answer_once
from web_support import fetch_one, settings

from archec.config import Denial
from archec.web.messages import TLS_FIELD
from archec.web.outcome import Outcome
from archec.web.tls import issuer_url, trusted

ISSUERS: dict[str, bytes] = {}


@behaviour
async def issuer(server: Hostile, writer: object, asked: object) -> bool:
    """What lies where a certificate names its issuer."""
    answer(writer, 200, ISSUERS[asked.query["name"]])  # type: ignore[arg-type, attr-defined]
    return True


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the private keys, which all tests share."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not installed: no certificates for tests of TLS")
    folder = tmp_path_factory.mktemp("keys")
    for name in ("root", "middle", "leaf", "evil"):
        openssl("genrsa", "-out", folder / f"{name}.key", "2048")
    return folder


def test_roots_are_those_of_the_environment_or_certifi_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    assert len(trusted().get_ca_certs()) > 50
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert trusted().get_ca_certs() == []


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A root, an intermediate below it, and servers' certificates; made by the openssl command."""

    def __init__(self, folder: Path, keys: Path) -> None:
        shutil.copytree(keys, folder)
        self.folder = folder
        self.make("root", "root", "CA:TRUE")
        self.make("middle", "root", "CA:TRUE")

    def make(self, name: str, issuer: str, constraints: str, *extensions: str, days: int = 2) -> Path:
        """A certificate of ``name`` by ``issuer``; both lie in the folder, as their keys do."""
        key, request, cert = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        conf = self.folder / f"{name}.ext"
        conf.write_text(f"basicConstraints=critical,{constraints}\n" + "".join(f"{line}\n" for line in extensions))
        subject = ("-subj", f"/CN={name}")
        openssl("req", "-new", *subject, "-key", key, "-out", request)
        signed = ("-signkey", key) if name == issuer else (
            "-CA", self.folder / f"{issuer}.pem", "-CAkey", self.folder / f"{issuer}.key", "-CAcreateserial"
        )  # fmt: skip
        openssl("x509", "-req", "-in", request, *signed, "-days", str(days), "-extfile", conf, "-out", cert)
        return cert

    def der(self, name: str) -> bytes:
        return ssl.PEM_cert_to_DER_cert((self.folder / f"{name}.pem").read_text())

    def server(self, name: str, *above: str) -> ssl.SSLContext:
        """The context of a server with this certificate and those above it."""
        chain = self.folder / f"{name}.chain"
        chain.write_text("".join((self.folder / f"{one}.pem").read_text() for one in (name, *above)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, self.folder / f"{name}.key")
        return context


@pytest.fixture
def authority(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    folder = tmp_path / "authority"
    made = Authority(folder, keys)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "root.pem"))
    return made


HERE = "subjectAltName=IP:127.0.0.1"


@contextlib.contextmanager
def over(context: ssl.SSLContext) -> Iterator[str]:
    with hostile_server(1, context) as server:
        yield server.url("/ok", scheme="https")


def needed(hop: object) -> str:
    return hop.header(TLS_FIELD)  # type: ignore[attr-defined, no-any-return]


def test_a_server_as_it_should_be_needs_nothing(authority: Authority, tmp_path: Path) -> None:
    authority.make("leaf", "middle", "CA:FALSE", HERE)
    with over(authority.server("leaf", "middle")) as url:
        hop = fetch_one(tmp_path, url)
    assert (hop.kind, needed(hop)) == ("body", "")


def old(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    """A server that speaks no later version."""
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLS"):
        context.maximum_version = version
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_an_old_server_is_asked_once_more_in_its_own_way(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    authority.make("leaf", "middle", "CA:FALSE", HERE)
    context = old(authority.server("leaf", "middle"), version)
    with over(context) as url:
        hop = fetch_one(tmp_path, url)
        refused = fetch_one(tmp_path, url, settings(old_tls=False, retries=0))
    assert hop.kind == "body", hop.message
    assert needed(hop) == f"old ({version.name.replace('_', '.')})"
    assert refused.outcome is Outcome.UNREACHABLE


def test_what_was_needed_is_kept_with_every_visit(authority: Authority, folder: Path) -> None:
    """Also with one that finds nothing new; and it is in the WARC record of either."""
    authority.make("leaf", "root", "CA:FALSE", HERE)
    context = old(authority.server("leaf"), ssl.TLSVersion.TLSv1_1)
    config = make(folder / "archive")
    with over(context) as url:
        write_papers(config, [url])
        reports = [run(config, trust_clock=True), run(config, trust_clock=True)]
    assert [dict(report.fobis) for report in reports] == [{"new": 1}, {"same": 1}]
    visits = [json.loads(line) for line in lines(config, everything=True) if '"visit":' in line]
    assert [one["visit"]["tls"] for one in visits] == ["old (TLSv1.1)"]
    assert archec_inline(config, "export", "warc", folder / "vault").code == 0
    found = {}
    for path in (folder / "vault").rglob("*.warc.gz"):
        with path.open("rb") as file:
            found |= {one.rec_type: one.rec_headers.get_header("WARC-X-Archec-TLS") for one in ArchiveIterator(file)}
    assert found == {"warcinfo": None, "resource": None, "response": "old (TLSv1.1)", "revisit": "old (TLSv1.1)"}
    check(config)


def test_an_old_server_that_says_so(authority: Authority, tmp_path: Path) -> None:
    """By an alert; the one above closes the connection."""
    authority.make("leaf", "root", "CA:FALSE", HERE)
    context = old(authority.server("leaf"), ssl.TLSVersion.TLSv1)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with contextlib.suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(4096)
                    secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

        thread = threading.Thread(target=serve)
        thread.start()
        hop = fetch_one(tmp_path, f"https://127.0.0.1:{listener.getsockname()[1]}/x", settings(retries=0))
        thread.join(10)
    assert (hop.kind, needed(hop)) == ("body", "old (TLSv1)")


def test_a_server_without_secure_renegotiation(authority: Authority, tmp_path: Path) -> None:
    """Of before RFC 5746: the first handshake is broken off by this end, for that reason."""
    authority.make("leaf", "root", "CA:FALSE", HERE)
    key, told = authority.folder / "leaf.key", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    served: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(3):
                connection, _ = listener.accept()
                served.append(answer_once(connection, key, authority.der("leaf"), told))

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/x"
        hop = fetch_one(tmp_path, url, settings(retries=0))
        refused = fetch_one(tmp_path, url, settings(retries=0, old_tls=False))
        thread.join(10)
    assert (hop.kind, needed(hop)) == ("body", "old (TLSv1.2)"), hop.message
    assert served == [False, True, False]
    assert refused.outcome is Outcome.UNREACHABLE
    assert "UNSAFE_LEGACY_RENEGOTIATION_DISABLED" in refused.message


def test_a_chain_is_completed_where_it_says(authority: Authority, hostile: Hostile, tmp_path: Path) -> None:
    place = hostile.url("/issuer?name=middle")
    others = "OCSP;URI:http://127.0.0.1/,caIssuers;URI:ldap://127.0.0.1/cn"
    authority.make("leaf", "middle", "CA:FALSE", HERE, f"authorityInfoAccess={others},caIssuers;URI:{place}")
    assert issuer_url(authority.der("leaf")) == place
    for form in (authority.der("middle"), (authority.folder / "middle.pem").read_bytes()):
        ISSUERS["middle"] = form
        with over(authority.server("leaf")) as url:
            hop = fetch_one(tmp_path, url)
        assert (hop.kind, needed(hop)) == ("body", "chain (TLSv1.3)")


def test_a_run_completes_a_chain(authority: Authority, hostile: Hostile, folder: Path) -> None:
    place = hostile.url("/issuer?name=middle")
    authority.make("leaf", "middle", "CA:FALSE", HERE, f"authorityInfoAccess=caIssuers;URI:{place}")
    ISSUERS["middle"] = authority.der("middle")
    config = make(folder / "archive")
    with over(authority.server("leaf")) as url:
        write_papers(config, [url])
        assert dict(run(config).fobis) == {"new": 1}
    visits = [json.loads(line) for line in lines(config, everything=True) if '"visit":' in line]
    assert [one["visit"]["tls"] for one in visits] == ["chain (TLSv1.3)"]
    check(config)


def test_a_chain_is_completed_through_the_guard(authority: Authority, hostile: Hostile, tmp_path: Path) -> None:
    place = f"http://127.0.0.2:{hostile.port}/issuer?name=middle"
    authority.make("leaf", "middle", "CA:FALSE", HERE, f"authorityInfoAccess=caIssuers;URI:{place}")
    ISSUERS["middle"] = authority.der("middle")
    with over(authority.server("leaf")) as url:
        hop = fetch_one(tmp_path, url, settings(allow_networks=("127.0.0.1/32",)))
    assert hop.outcome is Outcome.BAD_CERTIFICATE
    assert not hostile.asked


@pytest.mark.parametrize("denial", [Denial(urls=("*/issuer*",)), Denial(hosts=("127.0.0.2",))])
def test_a_chain_is_not_completed_where_that_is_denied(
    authority: Authority, hostile: Hostile, tmp_path: Path, denial: Denial
) -> None:
    place = f"http://127.0.0.2:{hostile.port}/issuer?name=middle"
    authority.make("leaf", "middle", "CA:FALSE", HERE, f"authorityInfoAccess=caIssuers;URI:{place}")
    ISSUERS["middle"] = authority.der("middle")
    with over(authority.server("leaf")) as url:
        assert fetch_one(tmp_path, url).kind == "body"
        asked = len(hostile.asked)
        assert fetch_one(tmp_path, url, settings(deny=(denial,))).outcome is Outcome.BAD_CERTIFICATE
    assert len(hostile.asked) == asked == 1


@pytest.mark.parametrize("served", ["root", "junk", "large", "other", "several"])
def test_no_server_names_whom_to_trust(authority: Authority, hostile: Hostile, tmp_path: Path, served: str) -> None:
    """A root of the server's own, nonsense, too much, another certificate, or that and the root behind it."""
    authority.make("evil", "evil", "CA:TRUE")
    place = hostile.url(f"/issuer?name={served}")
    authority.make("leaf", "evil", "CA:FALSE", HERE, f"authorityInfoAccess=caIssuers;URI:{place}")
    ISSUERS.update(
        root=authority.der("evil"), junk=b"0\x82\xff\xff" * 100, large=b"x" * 100_000, other=authority.der("middle"),
        several=authority.der("middle") + authority.der("evil"),
    )  # fmt: skip
    with over(authority.server("leaf")) as url:
        hop = fetch_one(tmp_path, url)
    assert (hop.kind, hop.outcome) == ("failed", Outcome.BAD_CERTIFICATE)


@pytest.mark.parametrize("wrong", ["self-signed", "expired", "other-name", "untrusted"])
def test_a_bad_certificate_is_an_outcome_unless_the_operator_accepts_it(
    authority: Authority, tmp_path: Path, wrong: str
) -> None:
    if wrong == "self-signed":
        authority.make("leaf", "leaf", "CA:FALSE", HERE)
    elif wrong == "expired":
        authority.make("leaf", "root", "CA:FALSE", HERE, days=0)
    elif wrong == "other-name":
        authority.make("leaf", "root", "CA:FALSE", "subjectAltName=IP:127.0.0.9")
    else:
        authority.make("evil", "evil", "CA:TRUE")
        authority.make("leaf", "evil", "CA:FALSE", HERE)
    with over(authority.server("leaf")) as url:
        refused = fetch_one(tmp_path, url)
        accepted = fetch_one(tmp_path, url, settings(insecure_hosts=("127.0.0.1",)))
    assert (refused.kind, refused.outcome) == ("failed", Outcome.BAD_CERTIFICATE)
    assert (accepted.kind, "unverified" in needed(accepted)) == ("body", True)


def test_a_run_takes_a_bad_certificate_from_nobody_but_whom_the_operator_accepts(
    authority: Authority, folder: Path
) -> None:
    authority.make("leaf", "leaf", "CA:FALSE", HERE)
    config = make(folder / "archive")
    with over(authority.server("leaf")) as url:
        write_papers(config, [url])
        assert dict(run(config).fobis) == {"bad-certificate": 1}
        config = change(config, {"fetch.insecure_hosts": ["127.0.0.1"]})
        assert dict(run(config).fobis) == {"new": 1}
    visits = [json.loads(line) for line in lines(config, everything=True) if '"visit":' in line]
    assert [one["visit"]["tls"].partition(" ")[0] for one in visits] == ["unverified"]
    check(config)


@pytest.mark.parametrize(("notice", "outcome"), [(True, "new"), (False, "truncated")])
def test_a_body_that_ends_with_the_connection_ends_with_notice(
    authority: Authority, folder: Path, notice: bool, outcome: str
) -> None:
    """Without TLS's close_notify anybody may have cut it."""
    authority.make("leaf", "root", "CA:FALSE", HERE)
    context = authority.server("leaf")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            secured = context.wrap_socket(connection, server_side=True)
            secured.recv(4096)
            secured.sendall(b"HTTP/1.0 200 OK\r\n\r\nhalf of it")
            if notice:
                with contextlib.suppress(OSError):
                    secured.unwrap()
            socket.socket(fileno=secured.detach()).close()

        thread = threading.Thread(target=serve)
        thread.start()
        config = make(folder / "archive", {"fetch.retries": 0})
        write_papers(config, [f"https://127.0.0.1:{listener.getsockname()[1]}/x"])
        assert dict(run(config).fobis) == {outcome: 1}
        thread.join(10)
    check(config)
