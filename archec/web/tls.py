"""TLS with real-world servers: exceptions for handshakes that fail by normal rules.

Certificates are verified against the list of certifi or SSL_CERT_FILE. If the first handshake fails for one of these
reasons, a second one is made

* with an *old* server: TLS 1.0 and 1.1, their ciphers, legacy renegotiation (``fetch.old_tls``). A server is old if it
  reports such an error or closes the connection in the handshake;
* with an incomplete *chain*: the missing certificates are fetched from where the server's certificate says (AIA, RFC
  5280 section 4.2.2.1). They are only trusted if they lead to a trusted root;
* *unverified*, with hosts in ``fetch.insecure_hosts``.

The needs of a host are cached. All other problems of a certificate raise ``Distrusted``.
"""

from __future__ import annotations

import os
import re
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import certifi

from archec.web.outcome import Distrusted

T = TypeVar("T")

OLD, CHAIN, UNVERIFIED = "old", "chain", "unverified"
ISSUER_SIZE = 64_000
"""Maximum size of an issuer's certificate."""

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
_MAX_HOSTS = 20_000
_MAX_ISSUERS = 200
_MAX_STEPS = 4
_CA_ISSUERS = re.compile(rb"\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02\x86(?:([\x01-\x7f])|\x81(.)|\x82(..))", re.S)

Needs = frozenset[str]


def trusted() -> ssl.SSLContext:
    """Trusts the roots of SSL_CERT_FILE, else those of SSL_CERT_DIR, else those of certifi."""
    file = os.environ.get("SSL_CERT_FILE")
    folder = None if file else os.environ.get("SSL_CERT_DIR")
    return ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder or None)


class Tls:
    """The TLS contexts of a policy. ``trust`` creates one that verifies certificates."""

    def __init__(
        self,
        *,
        old: bool = True,
        insecure_hosts: Sequence[str] = (),
        trust: Callable[[], ssl.SSLContext] = trusted,
    ) -> None:
        self._old, self._trust = old, trust
        self._insecure = frozenset(host.strip("[]") for host in insecure_hosts)
        self._contexts: dict[Needs, ssl.SSLContext] = {}
        self._needs: OrderedDict[str, Needs] = OrderedDict()
        self._issuers: dict[str, bytes] = {}
        """Certificates by URL, empty if there is none."""

    async def connect(
        self,
        host: str,
        connect: Callable[[ssl.SSLContext], Awaitable[T]],
        leaf_of: Callable[[T], bytes],
        fetch: Callable[[str], Awaitable[bytes]],
    ) -> tuple[T, Needs]:
        """Calls ``connect`` with a suitable context, and returns its connection and what it needed.

        ``leaf_of`` closes a connection and returns the server's certificate. ``fetch`` returns the contents of a URL,
        or b"". Raises Distrusted, and what ``connect`` raises.
        """
        needs = self._needs.get(host, frozenset())
        while True:
            try:
                made = await connect(self._context(needs))
            except (ssl.SSLError, ConnectionResetError) as error:
                more = self._missing_need(error, host, needs)
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
                if len(self._needs) > _MAX_HOSTS:
                    self._needs.popitem(last=False)
            return made, needs

    def _missing_need(self, error: OSError, host: str, needs: Needs) -> str:
        """The need that another handshake should satisfy, or "" if none would help."""
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
            # Defaults of Python 3.13: certificates from servers are not trust anchors, and neither browsers nor older
            # Pythons refuse what lacks an extension.
            context.verify_flags &= ~(_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT)
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
        """Fetches the issuers of a certificate, one after the other. False if there is none."""
        found = False
        for _ in range(_MAX_STEPS):
            url = issuer_url(certificate)
            if not url:
                break
            known = self._issuers.get(url)
            if known is None:
                if len(self._issuers) >= _MAX_ISSUERS:
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
    """The first http URL of the issuer's certificate that a certificate (DER) states, or "".

    Only its object identifier is searched for. If that finds something else, the chain does not verify.
    """
    for found in _CA_ISSUERS.finditer(certificate):
        size = int.from_bytes(next(filter(None, found.groups())), "big")
        url = certificate[found.end() : found.end() + size]
        if url.isascii() and url.lower().startswith(b"http://"):
            return url.decode("ascii")
    return ""


def _as_intermediate(data: bytes) -> bytes:
    """Converts the certificate of a CA from DER or PEM to DER. Empty if it is invalid or self-issued, or if there are
    several.

    A self-issued certificate is a root, and roots are never accepted from servers.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ValueError, ssl.SSLError):
        context.load_verify_locations(cadata=data.decode("ascii") if data.startswith(b"-----BEGIN") else data)
        (about,), (certificate,) = context.get_ca_certs(), context.get_ca_certs(binary_form=True)
        if context.cert_store_stats()["x509"] == 1 and about["issuer"] != about["subject"]:
            return certificate
    return b""


def _add(context: ssl.SSLContext, certificate: bytes) -> None:
    if certificate:
        with suppress(ssl.SSLError):
            context.load_verify_locations(cadata=certificate)
