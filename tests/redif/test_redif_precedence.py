"""Where in RePEc a path lies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.redif.precedence import Place, misplaced, own, place


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("RePEc/aaa/aaaarch.rdf", Place("aaa", (), "aaaarch.rdf")),
        ("RePEc/AAA/ssssss/1.rdf", Place("aaa", ("ssssss",), "1.rdf")),
        ("repec/aaa/s/y/1.rdf", Place("aaa", ("s", "y"), "1.rdf")),
        ("RePEc_2009-05-01/RePEc/aaa/x", Place("aaa", (), "x")),
        ("RePEc-ReDIF/aaa/x", Place("aaa", (), "x")),
        ("mnt/data/RePEc/aaa/x", Place("aaa", (), "x")),
        ("data/aaa/ssssss/x", Place("aaa", ("ssssss",), "x")),
        ("aaa/repec/x.rdf", Place("", (), "x.rdf")),
        ("aaa/ssssss/x", Place("aaa", ("ssssss",), "x")),
        ("papers/x.rdf", Place("", ("papers",), "x.rdf")),
        ("x.rdf", Place("", (), "x.rdf")),
        ("RePEc/x.rdf", Place("", (), "x.rdf")),
        ("RePEc/aaa/", Place("aaa", (), "")),
        ("RePEc/aaa/ssssss/", Place("aaa", ("ssssss",), "")),
        ("/RePEc/aaa/../x", Place("aaa", ("..",), "x")),
        ("RePEcology/aaa/x", Place("aaa", (), "x")),
        ("", Place("", (), "")),
    ],
)
def test_place(path: str, expected: Place) -> None:
    assert place(path) == expected


@pytest.mark.parametrize(
    ("handle", "path", "expected"),
    [
        ("RePEc:aaa", "RePEc/aaa/aaaarch.rdf", True),
        ("RePEc:aaa", "RePEc/all/aaaarch.rdf", False),
        ("RePEc:aaa:ssssss", "RePEc/aaa/aaaseri.rdf", True),
        ("RePEc:aaa:ssssss", "RePEc/aaa/other/x.rdf", True),
        ("RePEc:aaa:ssssss:1", "RePEc/aaa/ssssss/1.rdf", True),
        ("RePEc:aaa:ssssss:1", "RePEc/AAA/SSSSSS/2020/1.rdf", True),
        ("RePEc:aaa:ssssss:1:2", "RePEc/aaa/ssssss/1.rdf", True),
        ("RePEc:aaa:ssssss:1", "RePEc/aaa/1.rdf", False),
        ("RePEc:aaa:ssssss:1", "RePEc/aaa/tttttt/1.rdf", False),
        ("RePEc:aaa:ssssss:1", "RePEc/bbb/ssssss/1.rdf", False),
        ("hdl:1", "RePEc/aaa/1.rdf", False),
    ],
)
def test_own(handle: str, path: str, expected: bool) -> None:
    assert own(handle, path) is expected


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text(handle: str, path: str) -> None:
    found = place(path)
    assert found.archive == found.archive.lower()
    own(handle, path)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/x/RePEc/aaa/ssssss/1.rdf", ""), ("/tmp/RePEc/aaa/ssssss/2009/1.rdf", ""), ("1.rdf", ""), ("./1.rdf", ""),
        ("/tmp/1.rdf", ""), ("doc/1.rdf", ""), ("/tmp/papers/1.rdf", ""), ("/srv/bob/papers/1.rdf", ""),
        ("/tmp/aaa/ssssss/1.rdf", ""), ("AAA/SSSSSS/1.rdf", ""), ("/tmp/bbb/ssssss/1.rdf", "bbb/"),
        ("/tmp/aaa/tttttt/1.rdf", "aaa/tttttt/"), ("RePEc/bbb/ssssss/1.rdf", "bbb/"), ("RePEc/bbb/1.rdf", "bbb/"),
        ("RePEc/aaa/1.rdf", "aaa/"), ("RePEc/all/1.rdf", ""), ("RePEc/1.rdf", ""), ("RePEc/../tmp/1.rdf", ""),
    ],
)  # fmt: skip
def test_where_a_file_anywhere_on_a_disk_is_misplaced(path: str, told: str) -> None:
    assert misplaced("RePEc:aaa:ssssss:1", path) == told


def test_templates_of_archives_and_series_lie_anywhere_in_their_archive() -> None:
    assert misplaced("RePEc:aaa:ssssss", "RePEc/aaa/aaaseri.rdf") == ""
    assert misplaced("RePEc:aaa", "RePEc/aaa/aaaarch.rdf") == ""
    assert misplaced("RePEc:aaa", "RePEc/bbb/aaaarch.rdf") == "bbb/"
    assert misplaced("nonsense", "RePEc/bbb/aaaarch.rdf") == ""
