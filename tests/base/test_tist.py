from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec import tist as t
from archec.errors import BadName


@given(st.lists(st.floats(0, 2e9), min_size=1, max_size=20))
def test_software_tists_strictly_increase_whatever_the_clock_does(clock: list[float]) -> None:
    stamps: list[int] = []
    for now in clock:
        stamps.append(t.stamp(stamps[-1] if stamps else None, clock=lambda now=now: now))
    assert all(a < b for a, b in pairwise(stamps))


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2009-05-01", "2009-05-01T00:00:00Z"),
        ("2009-05", "2009-05-01T00:00:00Z"),
        ("2009", "2009-01-01T00:00:00Z"),
        ("2009-05-01T12:30:00+02:00", "2009-05-01T10:30:00Z"),
        ("1352481230", "2012-11-09T17:13:50Z"),
        ("1 May 2009 12:00", "2009-05-01T12:00:00Z"),
        ("2009-5-4", "2009-05-04T00:00:00Z"),
        ("20090504T120000Z", "2009-05-04T12:00:00Z"),
        ("12/2009", "2009-12-01T00:00:00Z"),
        ("30/06/2024", "2024-06-30T00:00:00Z"),
        ("06/30/2024", "2024-06-30T00:00:00Z"),
        ("03/03/2024", "2024-03-03T00:00:00Z"),
        ("Mon, 04 May 2009 10:00:00 GMT", "2009-05-04T10:00:00Z"),
    ],
)
def test_what_an_operator_types(text: str, when: str) -> None:
    assert t.iso(t.parse_when(text)) == when


@pytest.mark.parametrize("text", ["", "yesterdayish", "2009-13-45", "1e99", "99999-01-01", "1900-01-01"])
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(BadName):
        t.parse_when(text)


@pytest.mark.parametrize("text", ["Monday", "10:00", "-5", "5 May", "June", "Monday 10:00"])
def test_a_date_has_a_year(text: str) -> None:
    with pytest.raises(BadName, match="it has no year"):
        t.parse_when(text)


@pytest.mark.parametrize("text", ["03/04/2024", "03.04.2024", "3-4-2024", "03/04/2024 10:00"])
def test_a_date_that_may_be_two_is_none(text: str) -> None:
    with pytest.raises(BadName) as refusal:
        t.parse_when(text)
    assert "2024-04-03" in refusal.value.hint
    assert "2024-03-04" in refusal.value.hint
