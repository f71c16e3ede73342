"""Checksums of file contents."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.digest import Digests, md5_hex, sha256_hex


@given(st.lists(st.binary()))
def test_pieces_give_the_checksums_of_the_whole(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    digests = Digests(sha1=True)
    for piece in pieces:
        digests.update(memoryview(piece))
    assert digests.size == len(whole)
    assert digests.md5 == md5_hex(whole) == hashlib.md5(whole).hexdigest()
    assert digests.sha256 == sha256_hex(whole) == hashlib.sha256(whole).hexdigest()
    assert digests.sha1 == hashlib.sha1(whole).hexdigest()


def test_reading_a_checksum_does_not_end_the_stream() -> None:
    digests = Digests()
    assert digests.sha256 == sha256_hex(b"")
    digests.update(b"more")
    assert digests.sha256 == sha256_hex(b"more")


def test_sha1_is_taken_only_where_it_is_asked_for() -> None:
    with pytest.raises(ValueError, match="not requested"):
        _ = Digests().sha1
