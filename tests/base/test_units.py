from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.errors import UsageError
from archec.units import counted, human_duration, human_size, parse_duration, parse_share, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("2000", 2000), ("2kB", 2000), ("2KiB", 2048), ("1.5 MB", 1_500_000), ("2GiB", 2 << 30), (7, 7)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), (0, 0), (0.0, 0), ("90s", 90), ("1h30m", 5400), ("7d", 604800), ("250ms", 0.25)]
)
def test_durations(text: str | int, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), (1, 1.0), ("100 %", 1.0)])
def test_shares(text: str | int, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "x", "-1", "5 miles", "1h5", True, "nan%"])
def test_nonsense(text: str | bool) -> None:
    for parse in (parse_size, parse_duration, parse_share):
        with pytest.raises(UsageError):
            parse(text)


def test_what_is_counted() -> None:
    told = [counted(0, "file"), counted(1, "file"), counted(1234, "file"), counted(1, "loss", "losses")]
    assert told == ["0 files", "1 file", "1,234 files", "1 loss"]


@given(st.integers(0, 10**18))
def test_people_can_read_it(count: int) -> None:
    assert len(human_size(count)) < 14
    assert len(human_duration(count % 10**8)) < 10
