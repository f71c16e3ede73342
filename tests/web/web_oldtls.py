"""A TLS 1.2 server of before RFC 5746: it knows nothing of secure renegotiation, and no program at hand can play it.

Just enough of RFC 5246 for one suite (ECDHE_RSA with AES-128-GCM, on X25519) and one short answer.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
from pathlib import Path
from typing import BinaryIO, cast

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = b"\x03\x03"
_SUITE = b"\xc0\x2f"
_CHANGE, _ALERT, _HANDSHAKE, _DATA = 20, 21, 22, 23


def answer_once(connection: socket.socket, key: Path, certificate: bytes, answer: bytes) -> bool:
    """Shakes hands with a client, reads its request and gives it an answer; False where the client leaves before that.
    ``certificate`` is in DER."""
    with connection, connection.makefile("rb") as stream:
        try:
            return _Server(connection, stream).serve(key, certificate, answer)
        except OSError:
            return False


class _Server:
    def __init__(self, connection: socket.socket, stream: BinaryIO) -> None:
        self._connection, self._stream = connection, stream
        self._said = b""
        """All messages of the handshake so far."""

    def serve(self, key: Path, certificate: bytes, answer: bytes) -> bool:
        hello = self._heard()
        ours, mine = os.urandom(32), X25519PrivateKey.generate()
        theirs = hello[6:38]
        self._say(2, _VERSION + ours + b"\0" + _SUITE + b"\0")  # no extension, not the one of RFC 5746 either
        self._say(11, _long(_long(certificate)))
        public = mine.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        curve = b"\x03\x00\x1d" + bytes([len(public)]) + public
        private = cast(RSAPrivateKey, serialization.load_pem_private_key(key.read_bytes(), None))
        signed = private.sign(theirs + ours + curve, padding.PKCS1v15(), hashes.SHA256())
        self._say(12, curve + b"\x04\x01" + len(signed).to_bytes(2, "big") + signed)
        self._say(14, b"")
        exchange = self._heard()
        if not exchange:
            return False
        shared = mine.exchange(X25519PublicKey.from_public_bytes(exchange[5:]))
        master = _derived(shared, b"master secret" + theirs + ours, 48)
        keys = _derived(master, b"key expansion" + ours + theirs, 40)
        read, write = AESGCM(keys[:16]), AESGCM(keys[16:32])
        salts = keys[32:36], keys[36:]
        self._record()  # from now on it is ciphered
        self._said += _opened(read, salts[0], 0, _HANDSHAKE, self._record()[1])
        finished = _derived(master, b"server finished" + hashlib.sha256(self._said).digest(), 12)
        self._send(_CHANGE, b"\1")
        self._send(_HANDSHAKE, _sealed(write, salts[1], 0, _HANDSHAKE, b"\x14\0\0\x0c" + finished))
        _opened(read, salts[0], 1, _DATA, self._record()[1])
        self._send(_DATA, _sealed(write, salts[1], 1, _DATA, answer))
        self._send(_ALERT, _sealed(write, salts[1], 2, _ALERT, b"\1\0"))
        return True

    def _record(self) -> tuple[int, bytes]:
        head = self._stream.read(5) or b"\0" * 5
        return head[0], self._stream.read(int.from_bytes(head[3:5], "big")) or b""

    def _heard(self) -> bytes:
        """The client's next message, empty where it gives up."""
        kind, message = self._record()
        self._said += message
        return message if kind == _HANDSHAKE else b""

    def _say(self, kind: int, body: bytes) -> None:
        message = bytes([kind]) + _long(body)
        self._said += message
        self._send(_HANDSHAKE, message)

    def _send(self, kind: int, data: bytes) -> None:
        self._connection.sendall(bytes([kind]) + _VERSION + len(data).to_bytes(2, "big") + data)


def _long(data: bytes) -> bytes:
    return len(data).to_bytes(3, "big") + data


def _derived(secret: bytes, seed: bytes, size: int) -> bytes:
    """The pseudorandom function of RFC 5246, section 5."""
    step, found = seed, b""
    while len(found) < size:
        step = hmac.digest(secret, step, "sha256")
        found += hmac.digest(secret, step + seed, "sha256")
    return found[:size]


def _about(number: int, kind: int, size: int) -> bytes:
    return number.to_bytes(8, "big") + bytes([kind]) + _VERSION + size.to_bytes(2, "big")


def _sealed(cipher: AESGCM, salt: bytes, number: int, kind: int, data: bytes) -> bytes:
    nonce = number.to_bytes(8, "big")
    return nonce + cipher.encrypt(salt + nonce, data, _about(number, kind, len(data)))


def _opened(cipher: AESGCM, salt: bytes, number: int, kind: int, data: bytes) -> bytes:
    return cipher.decrypt(salt + data[:8], data[8:], _about(number, kind, len(data) - 24))
