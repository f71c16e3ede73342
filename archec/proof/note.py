"""Signed notes (c2sp.org/signed-note): a text, and lines with Ed25519 signatures."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from archec.errors import UsageError

_ED25519 = b"\x01"
_PRIVATE = "PRIVATE+KEY+"
_NAME = re.compile(r"[^\s+]{1,200}")
_LINE = re.compile(r"\u2014 ([^\s+]+) ([A-Za-z0-9+/=]+)")
_K = TypeVar("_K")
KEY_HINT = "a verifier key is NAME+ID+KEY, as 'archec seal --new-key' prints it"


class Signature(NamedTuple):
    """A signature line: the name and the four-byte id of the key, and the signature."""

    name: str
    id: bytes
    signature: bytes


class SignedNote(NamedTuple):
    """A text that ends with a line end, and its signatures."""

    text: str
    signatures: tuple[Signature, ...] = ()

    def __str__(self) -> str:
        lines = (f"\u2014 {s.name} {base64.b64encode(s.id + s.signature).decode()}\n" for s in self.signatures)
        return f"{self.text}\n{''.join(lines)}"


class VerifierKey(NamedTuple):
    """The public half of a key, and its name."""

    name: str
    public: bytes

    @property
    def id(self) -> bytes:
        """Four bytes that identify name and key."""
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(_ED25519 + self.public).decode()}"

    def signed(self, note: SignedNote) -> bool:
        """Whether a note has a signature by this key."""
        mine = [s for s in note.signatures if (s.name, s.id) == (self.name, self.id)]
        for found in mine:
            try:
                Ed25519PublicKey.from_public_bytes(self.public).verify(found.signature, note.text.encode())
            except InvalidSignature:
                return False
        return bool(mine)


class SigningKey(NamedTuple):
    """A key that signs; ``seed`` is the secret."""

    name: str
    seed: bytes

    @property
    def verifier(self) -> VerifierKey:
        return VerifierKey(self.name, self._key().public_key().public_bytes_raw())

    def __str__(self) -> str:
        return f"{_PRIVATE}{self.name}+{self.verifier.id.hex()}+{base64.b64encode(_ED25519 + self.seed).decode()}"

    def sign(self, note: SignedNote) -> SignedNote:
        signature = Signature(self.name, self.verifier.id, self._key().sign(note.text.encode()))
        return note._replace(signatures=(*note.signatures, signature))

    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)


def from_base64(text: str) -> bytes:
    """The bytes of a text in canonical base64, b"" for anything else."""
    with suppress(ValueError):
        data = base64.b64decode(text, validate=True)
        if base64.b64encode(data).decode() == text:
            return data
    return b""


def hash_from(text: str, what: str) -> bytes:
    """The 32 bytes of a hash in base64. Raises ValueError, which says that it is not ``what``."""
    found = from_base64(text)
    if len(found) != 32:
        raise ValueError(f"{text[:80]!r} is not a {what}")
    return found


def new_key(name: str) -> SigningKey:
    """Creates a key. Raises UsageError for a name that is not allowed in a note."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a key: it has blanks, a '+', or nothing at all")
    return SigningKey(name, Ed25519PrivateKey.generate().private_bytes_raw())


def signing_key(text: str, where: str) -> SigningKey:
    """The key in the text of a file. Raises UsageError, which reveals nothing of it."""
    found = _key(SigningKey, text.strip(), _PRIVATE)
    if found is None:
        raise UsageError(f"{where}: is not a signing key", hint="'archec seal --new-key FILE' makes one")
    return found


def verifier_key(text: str) -> VerifierKey:
    """The key in a line of text. Raises UsageError if it is not one."""
    found = _key(VerifierKey, text.strip())
    if found is None:
        raise UsageError(f"{text.strip()[:100]!r} is not a verifier key", hint=KEY_HINT)
    return found


def _key(kind: Callable[[str, bytes], _K], text: str, prefix: str = "") -> _K | None:
    """The key in a text, None if it is not exactly what a key of this kind is written as."""
    name, _, rest = text.removeprefix(prefix).partition("+")
    data = from_base64(rest.partition("+")[2])
    if not _NAME.fullmatch(name) or len(data) != 33 or data[:1] != _ED25519:
        return None
    found = kind(name, data[1:])
    return found if str(found) == text else None


def parse_note(data: bytes) -> SignedNote:
    """Parses a note. Raises ValueError with the reason if it is invalid."""
    try:
        whole = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    text, blank, rest = whole.rpartition("\n\n")
    if not blank or (rest and not rest.endswith("\n")):
        raise ValueError("it has no blank line before its signatures, or no line end behind them")
    signatures = []
    for line in rest.split("\n")[:-1]:
        match = _LINE.fullmatch(line)
        signed = from_base64(match[2]) if match else b""
        if match is None or len(signed) < 5:
            raise ValueError(f"{line[:80]!r} is not a signature")
        signatures.append(Signature(match[1], signed[:4], signed[4:]))
    return SignedNote(text + "\n", tuple(signatures))


def signers(note: SignedNote, keys: Iterable[VerifierKey]) -> list[str]:
    """The names of the ``keys`` that signed a note."""
    return [key.name for key in keys if key.signed(note)]
