"""Header fields: what is kept, how it is cleaned, what it means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.web.messages import KEPT, kept, raw_headers, wait_asked, whole

NOW = 1_000_000_000.0  # Sun, 09 Sep 2001 01:46:40 GMT


def retry_after(value: str, now: float = NOW, **fields: str) -> float:
    return wait_asked({"retry-after": value, **fields}, now)


def test_retry_after() -> None:
    assert retry_after("120", NOW) == 120
    assert retry_after("0", NOW) == 0
    assert retry_after("9" * 50, NOW) == 999_999_999_999
    assert retry_after("Sun, 09 Sep 2001 01:47:40 GMT", NOW) == 60
    assert retry_after("Sun, 09 Sep 2001 01:47:40", NOW) == 60
    assert retry_after("Sun, 09 Sep 2001 01:47:40 GMT", NOW, date="Sun, 09 Sep 2001 01:47:30 GMT") == 10
    assert retry_after("Sat, 08 Sep 2001 01:47:40 GMT", NOW) == 0
    dates = ("Sun, 99 Sep 2001 01:47:40 GMT", "Mon, 01 Jan 0001 00:00:00 +2359")
    for nonsense in ("", "soon", "-5", "1.5", "\u0663", *dates):
        assert retry_after(nonsense, NOW) == 0.0


def test_numbers_of_more_than_18_digits_are_none() -> None:
    assert whole("9" * 18) == 10**18 - 1
    assert whole("9" * 19) is None
    assert (whole("0" * 5000 + "5"), whole("0" * 19), whole("")) == (5, 0, None)


@given(st.text())
def test_retry_after_never_raises(value: str) -> None:
    wait = retry_after(value, NOW)
    assert wait >= 0


@given(st.lists(st.tuples(st.sampled_from([name.encode() for name in sorted(KEPT)] + [b"X-Other"]), st.binary())))
def test_kept_fields_are_clean_and_bounded(raw: list[tuple[bytes, bytes]]) -> None:
    fields = kept(raw_headers(raw))
    assert {name for name, _ in fields} <= KEPT
    assert len(fields) == len({name for name, _ in fields})
    for _, value in fields:
        assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in value)
        assert value == value.strip()


def test_a_location_of_blanks_and_controls_is_empty() -> None:
    assert kept(raw_headers([(b"Location", b"\x00 \x00")])) == (("location", ""),)


def test_long_values_are_cut_but_never_a_validator_or_a_location() -> None:
    fields = raw_headers([(b"ETag", b'"' + b"x" * 2000), (b"Server", b"s" * 2000), (b"LOCATION", b"/" + b"l" * 9000)])
    assert "etag" not in fields
    assert len(fields["server"]) == 1024
    assert "location" not in fields
    assert len(raw_headers([(b"Location", b"/" + b"l" * 8191)])["location"]) == 8192


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (b"http://a:b@h/x@y?z=http://c@d", "http://h/x@y?z=http://d"), (b"http://a@b@h/", "http://h/"),
        (b"http://h/a@b", "http://h/a@b"), (b"http://u:p@[bad/x", "http://[bad/x"),
    ],
)  # fmt: skip
def test_user_information_is_cut_out_of_locations_only_where_it_is_that(location: bytes, shown: str) -> None:
    assert kept(raw_headers([(b"Location", location)])) == (("location", shown),)
