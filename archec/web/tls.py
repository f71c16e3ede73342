"""TLS with real-world servers: exceptions for handshakes that fail in the normal way, and what is never accepted.

Certificates are verified against certifi's or SSL_CERT_FILE's list. If the first handshake fails for that reason, a
second one is made

* with an *old* server: TLS 1.0 and 1.1, their ciphers, legacy renegotiation (``fetch.old_tls``). It says so, or it
  closes the connection in the handshake;
* with an incomplete *chain*: the missing certificates are fetched from where the server's names them (AIA, RFC 5280
  section 4.2.2.1). They are only trusted if they lead to a trusted root;
* *unverified*, with hosts in ``fetch.insecure_hosts``.

The needs of a host are cached. All other problems of a certificate raise ``Distrusted``.
"""

from __future__ import annotations

import re
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import httpx

from archec.web.faults import Distrusted

T = TypeVar("T")

OLD, CHAIN, UNVERIFIED = "old", "chain", "unverified"
ISSUER_SIZE = 64_000
"""Maximum size of a certificate that is fetched."""

_OLD_SERVER = frozenset(
    {
        "UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "UNSAFE_LEGACY_RENEGOTIATION_DISABLED",
        "DH_KEY_TOO_SMALL", "SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY",
    }
)  # fmt: skip
_NO_ISSUER = frozenset({20, 21})
"""X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE."""
_LEGACY_CONNECT = 0x4
"""SSL_OP_LEGACY_SERVER_CONNECT, a constant of Python since 3.12."""
_PARTIAL_CHAIN = 0x80000
_MOST_HOSTS = 20_000
_MOST_ISSUERS = 200
_MOST_STEPS = 4
_CA_ISSUERS = re.compile(rb"\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02\x86(?:([\x01-\x7f])|\x81(.)|\x82(..))", re.S)

Needs = frozenset[str]


class Tls:
    """The contexts of a policy. ``trust`` makes one that verifies certificates."""

    def __init__(
        self,
        *,
        old: bool = True,
        insecure_hosts: Sequence[str] = (),
        trust: Callable[[], ssl.SSLContext] = httpx.create_ssl_context,
    ) -> None:
        self._old, self._insecure, self._trust = old, frozenset(insecure_hosts), trust
        self._contexts: dict[Needs, ssl.SSLContext] = {}
        self._needs: OrderedDict[str, Needs] = OrderedDict()
        self._issuers: dict[str, bytes] = {}
        """By URL, empty if there was none."""

    async def connect(
        self,
        host: str,
        connect: Callable[[ssl.SSLContext], Awaitable[T]],
        leaf_of: Callable[[T], bytes],
        fetch: Callable[[str], Awaitable[bytes]],
    ) -> tuple[T, Needs]:
        """A connection that ``connect`` makes with a context, and what it needed.

        ``leaf_of`` gives the server's certificate of a connection that is not wanted further, ``fetch`` what is at a
        URL, b"" if nothing does. Raises Distrusted, and what ``connect`` raises.
        """
        needs = self._needs.get(host, frozenset())
        while True:
            try:
                made = await connect(self._context(needs))
            except (ssl.SSLError, ConnectionResetError) as error:
                more = self._lacking(error, host, needs)
                if more == CHAIN:
                    leaf = leaf_of(await connect(self._context((needs - {CHAIN}) | {UNVERIFIED})))
                    if not await self._complete(leaf, fetch):
                        more = UNVERIFIED if host in self._insecure else ""
                if not more:
                    if isinstance(error, ssl.SSLCertVerificationError):
                        text = f"the certificate of {host} does not verify: {error.verify_message}"
                        raise Distrusted(text) from error
                    raise
                needs |= {more}
                continue
            if needs:
                self._needs[host] = needs
                if len(self._needs) > _MOST_HOSTS:
                    self._needs.popitem(last=False)
            return made, needs

    def _lacking(self, error: OSError, host: str, needs: Needs) -> str:
        """What another handshake would need, empty if none would do."""
        if isinstance(error, ssl.SSLCertVerificationError):
            if error.verify_code in _NO_ISSUER and CHAIN not in needs:
                return CHAIN
            return UNVERIFIED if host in self._insecure and UNVERIFIED not in needs else ""
        is_old = not isinstance(error, ssl.SSLError) or error.reason in _OLD_SERVER
        return OLD if self._old and is_old and OLD not in needs else ""

    def _context(self, needs: Needs) -> ssl.SSLContext:
        context = self._contexts.get(needs)
        if context is None:
            context = self._contexts[needs] = self._trust()
            context.set_alpn_protocols(["http/1.1"])
            context.verify_flags &= ~_PARTIAL_CHAIN  # what servers send, and name, is no anchor of trust
            if OLD in needs:
                context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
                context.options |= _LEGACY_CONNECT
                context.set_ciphers("DEFAULT:@SECLEVEL=0")
            if UNVERIFIED in needs:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if CHAIN in needs:
                for certificate in self._issuers.values():
                    _add(context, certificate)
        return context

    async def _complete(self, certificate: bytes, fetch: Callable[[str], Awaitable[bytes]]) -> bool:
        """Fetches the certificates above one, as far as they are named; False if there is none."""
        found = False
        for _ in range(_MOST_STEPS):
            url = issuer_url(certificate)
            if not url:
                break
            known = self._issuers.get(url)
            if known is None:
                if len(self._issuers) >= _MOST_ISSUERS:
                    self._issuers.clear()
                    self._contexts.clear()
                known = self._issuers[url] = _as_intermediate(await fetch(url))
                for needs, context in self._contexts.items():
                    if CHAIN in needs:
                        _add(context, known)
            if not known:
                break
            certificate, found = known, True
        return found


def issuer_url(certificate: bytes) -> str:
    """The http URL at which a certificate (DER) says its issuer's is to be had, empty if it says none.

    It is looked for by its object identifier alone: where this misleads, the chain does not verify.
    """
    found = _CA_ISSUERS.search(certificate)
    if found is None:
        return ""
    size = int.from_bytes(next(filter(None, found.groups())), "big")
    url = certificate[found.end() : found.end() + size]
    return url.decode("ascii") if url.isascii() and url.lower().startswith(b"http://") else ""


def _as_intermediate(data: bytes) -> bytes:
    """A certificate (DER) from DER or PEM; empty if it is none, or one that is its own issuer.

    A certificate that is its own issuer is a root, and no root comes from a server.
    """
    if data.startswith(b"-----BEGIN"):
        with suppress(ValueError):
            data = ssl.PEM_cert_to_DER_cert(data.decode("ascii"))
    with suppress(ValueError, IndexError):
        issuer, subject = _names(data)
        if issuer != subject:
            return data
    return b""


def _names(certificate: bytes) -> tuple[bytes, bytes]:
    """Issuer and subject of a certificate (DER), as they stand. Raises ValueError or IndexError for nonsense."""
    start, _ = _element(certificate, 0)
    place, _ = _element(certificate, start)
    if certificate[place] == 0xA0:  # the version, which those of version 1 lack
        place = sum(_element(certificate, place))
    fields = []
    for _ in range(5):  # serial number, signature, issuer, validity, subject
        begin, size = _element(certificate, place)
        fields.append(certificate[place : begin + size])
        place = begin + size
    return fields[2], fields[4]


def _element(data: bytes, place: int) -> tuple[int, int]:
    """Where the contents of the DER element at ``place`` begin, and their size."""
    first = data[place + 1]
    if first < 0x80:
        return place + 2, first
    count = first & 0x7F
    if not 1 <= count <= 4:
        raise ValueError("not DER")
    return place + 2 + count, int.from_bytes(data[place + 2 : place + 2 + count], "big")


def _add(context: ssl.SSLContext, certificate: bytes) -> None:
    if certificate:
        with suppress(ssl.SSLError):
            context.load_verify_locations(cadata=certificate)
