"""Trees, proofs and notes against published test vectors, and against the definitions of RFC 9162."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.errors import UsageError
from archec.proof.merkle import (
    RangeRoots,
    Tree,
    consistency_ranges,
    extends,
    includes,
    inclusion_ranges,
    leaf_hash,
)
from archec.proof.note import SignedNote, new_key, parse_note, signers, signing_key, verifier_key

# Those of the reference implementation of certificate transparency.
INPUTS = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
INCLUSION_6_OF_8 = [
    "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
]
CONSISTENCY_6_TO_8 = [
    "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
    "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
]
# The example of the package that defined signed notes.
KEY = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
VERIFIER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
SIGNED = (
    f"{TEXT}\n\u2014 PeterNeumann "
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)


def root_of(leaves: Sequence[bytes]) -> bytes:
    """MTH of RFC 9162, section 2.1.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\1" + root_of(leaves[:k]) + root_of(leaves[k:])).digest()


def roots(leaves: Sequence[bytes], ranges: Sequence[object]) -> list[bytes]:
    found = RangeRoots(ranges)  # type: ignore[arg-type]
    for leaf in leaves:
        found.add(leaf_hash(leaf))
    return found.roots()


def test_roots_and_proofs_of_certificate_transparency() -> None:
    tree = Tree()
    assert tree.root == root_of([])
    for leaf, root in zip(INPUTS, ROOTS, strict=True):
        tree.add(leaf_hash(leaf))
        assert tree.root.hex() == root
    assert [one.hex() for one in roots(INPUTS, inclusion_ranges(5, 8))] == INCLUSION_6_OF_8
    assert [one.hex() for one in roots(INPUTS, consistency_ranges(6, 8))] == CONSISTENCY_6_TO_8


@given(st.lists(st.binary(max_size=3), max_size=40), st.data())
def test_every_proof_holds_and_no_other(leaves: list[bytes], data: st.DataObject) -> None:
    tree = Tree()
    for leaf in leaves:
        tree.add(leaf_hash(leaf))
    assert tree.root == root_of(leaves)
    if not leaves:
        return
    size, root = len(leaves), tree.root
    index = data.draw(st.integers(0, size - 1))
    proof = roots(leaves, inclusion_ranges(index, size))
    assert includes(index, size, leaf_hash(leaves[index]), proof, root)
    assert not includes(index, size, leaf_hash(leaves[index] + b"x"), proof, root)
    assert not includes(index, size, leaf_hash(leaves[index]), [*proof, root], root)
    if proof:
        assert not includes(index, size, leaf_hash(leaves[index]), proof[:-1], root)
    old = data.draw(st.integers(1, size))
    growth = roots(leaves, consistency_ranges(old, size))
    assert extends(old, root_of(leaves[:old]), size, root, growth)
    assert not extends(old, root_of([*leaves[: old - 1], b"another"]), size, root, growth)
    if old < size:
        assert not extends(old, root_of(leaves[:old]), size, root_of([*leaves[:-1], b"another"]), growth)
        assert not extends(old, root_of(leaves[:old]), size, root, growth[:-1])


def test_notes_are_signed_as_others_sign_them() -> None:
    key = signing_key(KEY + "\n", "a file")
    assert (str(key), str(key.verifier)) == (KEY, VERIFIER)
    note = key.sign(SignedNote(TEXT))
    assert str(note) == SIGNED
    assert parse_note(SIGNED.encode()) == note
    assert signers(note, [verifier_key(VERIFIER)]) == ["PeterNeumann"]
    assert signers(note._replace(text=TEXT + "x\n"), [key.verifier]) == []
    assert signers(note, [new_key("PeterNeumann").verifier]) == []
    other = new_key("archive.example.org")
    assert signers(other.sign(note), [other.verifier, key.verifier]) == ["archive.example.org", "PeterNeumann"]


@pytest.mark.parametrize("text", ["", "x", VERIFIER[:-1], VERIFIER.replace("c74f20a3", "c74f20a4"), KEY, "a+b+c"])
def test_what_is_no_verifier_key(text: str) -> None:
    with pytest.raises(UsageError, match="is not a verifier key"):
        verifier_key(text)


def test_a_signing_key_is_never_shown() -> None:
    with pytest.raises(UsageError) as caught:
        signing_key(KEY[:-1], "a file")
    assert KEY[30:50] not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\n\n", b"a\n", SIGNED.encode()[:-1], b"a\n\n\xe2\x80\x94 x y\n", b"a\n\nb\n"]
)
def test_what_is_no_note(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"it|signature"):
        parse_note(data)
