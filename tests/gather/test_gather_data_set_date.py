from __future__ import annotations

import pytest

from archec.errors import BadName
from archec.gather.data_set_date import date_in_name
from archec.tist import iso


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("RePEc_2009-05-01.tar.gz", "2009-05-01"),
        ("RePEc-2016-04-20.tar.zst", "2016-04-20"),
        ("RePEc20051301-2005-01-13.tar", "2005-01-13"),
        ("redif.2012.02.29.tgz", "2012-02-29"),
        ("RePEc_20090501.tar.gz", "2009-05-01"),
        ("RePEc.tar.gz", None),
        ("RePEc-12016-04-20.tar", None),
        ("RePEc-1241136000.tar", None),
        ("marginal2009.tar", None),
        ("RePEc-2009-marginal.tar", None),
        ("RePEc-90210.tar", None),
    ],
)
def test_the_date_in_a_name(name: str, day: str | None) -> None:
    found = date_in_name(name)
    assert (iso(found)[:10] if found is not None else None) == day


@pytest.mark.parametrize(
    ("name", "readings"),
    [
        ("RePEc_01-05-2009.tar.gz", ["2009-01-05", "2009-05-01"]),
        ("RePEc_2011-2-6.tar", ["2011-02-06", "2011-06-02"]),
        ("RePEc_31.12.2009.tgz", ["2009-12-31"]),
        ("RePEc-01052009.tgz", ["2009-01-05", "2009-05-01"]),
        ("RePEc_20111305.tgz", ["2011-05-13"]),
        ("RePEc_01-05-09.tar", ["2001-05-09", "2001-09-05", "2009-01-05", "2009-05-01"]),
        ("RePEc_2009-02-30.tar.gz", []),
        ("RePEc-2016-04.tar.gz", ["any day of 2016-04"]),
        ("RePEc-2016-31.tar.gz", []),
        ("RePEc_20090501120000.tar", ["2009-01-05", "2009-05-01"]),
        ("RePEc_200905011200.tar", ["2009-01-05", "2009-05-01"]),
        ("RePEc_2009050112.tar", ["2009-01-05", "2009-05-01"]),
        ("RePEc_200905.tar", ["any day of 2009-05"]),
        ("RePEc_2009_05.tar", ["any day of 2009-05"]),
        ("RePEc.2009.5.tar", ["any day of 2009-05"]),
        ("RePEc_01May2009.tar", []),
        ("RePEc-2009-may-01.tar", []),
        ("RePEc_September_1_2009.tar", []),
        ("RePEc Jan 2009.tar", []),
        ("RePEc_2009-05-01_packed_20120301.tar", ["2009-05-01", "2012-03-01"]),
    ],
)
def test_a_date_with_two_readings_or_none_is_refused(name: str, readings: list[str]) -> None:
    with pytest.raises(BadName) as refusal:
        date_in_name(name)
    assert refusal.value.exit_code == 2
    assert refusal.value.message.partition("; it may be ")[2] == " or ".join(readings)
    assert "--as-of" in refusal.value.hint
