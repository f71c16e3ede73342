"""What a database refuses is set aside, and everything else of the batch is there; on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pymongo
import pytest
from catalogue_data import fobi, lot, tobi
from msgspec.structs import replace

from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import KeyedSet, Position, Refipo, Run, Version, Visit, Visited
from archec.catalogue.refused import write_accepted
from archec.errors import CatalogueRefused

Refuser = Callable[[str], None]
"""Makes the database refuse every head with an id."""


@pytest.fixture(params=["sqlite", "mongodb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Catalogue, Refuser]]:
    """A catalogue, and a way to have the database itself refuse an id."""
    if request.param == "sqlite":
        catalogue = open_catalogue("sqlite:///c.sqlite", base=tmp_path, create=True)

        def refuse(obi: str) -> None:
            for table in ("mi", "mo"):
                catalogue.fetch(  # type: ignore[attr-defined]
                    f"CREATE TRIGGER no_{table}_{obi} BEFORE INSERT ON {table} WHEN NEW.id = '{obi}'"
                    " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
                )
    else:
        url = request.getfixturevalue("mongodb_url")
        catalogue = open_catalogue(url, base=tmp_path, create=True)

        def refuse(obi: str) -> None:
            with pymongo.MongoClient(url) as client:
                for name in ("mi", "mo"):
                    client.get_default_database().command("collMod", name, validator={"_id": {"$ne": obi}})

    yield catalogue, refuse
    catalogue.close()


def test_everything_but_what_is_refused_is_there(engine: tuple[Catalogue, Refuser]) -> None:
    catalogue, refuse = engine
    refuse("bad")
    many = [tobi(f"t{n:03d}") for n in range(100)]
    more = lot(
        1, *many[:50], tobi("bad"), *many[50:], fobi("u"), runs=[Run(7)], sets=[KeyedSet("k", b"x")],
        visits=[Visited("w", Visit(5, "gone"), 9)], mentioned=["x"],
    )  # fmt: skip
    with pytest.raises(CatalogueRefused):
        catalogue.write(more)
    assert catalogue.position() == Position()
    (refused,) = write_accepted(catalogue, more)
    assert (refused.what, refused.run, refused.batch) == ("obis bad", more.position.run, more.position.batch)
    assert catalogue.refused() == [refused]
    assert catalogue.position() == more.position
    assert [obi.id for obi in catalogue.all("tobi")] == [obi.id for obi in many]
    assert {obi.id for obi in catalogue.all("fobi")} == {"u", "w", "x"}
    assert (catalogue.keyed("k"), [run.tist for run in catalogue.runs()]) == (b"x", [7])
    before = list(dump(catalogue, everything=True))
    assert write_accepted(catalogue, more) == [refused], "writing it again changes nothing"
    assert list(dump(catalogue, everything=True)) == before
    assert write_accepted(catalogue, lot(2, tobi("t000", 1, 2))) == []
    catalogue.clear()
    assert catalogue.refused() == []


def test_a_value_that_no_database_keeps(engine: tuple[Catalogue, Refuser]) -> None:
    catalogue, _ = engine
    (refused,) = write_accepted(catalogue, lot(1, tobi("a"), fobi("b", 1, due=1 << 70), tobi("c")))
    assert refused.what == "obis b"
    assert [obi.id for obi in catalogue.all("tobi")] == ["a", "c"]


@pytest.mark.slow
def test_a_thousand_file_urls_in_a_hundred_versions(engine: tuple[Catalogue, Refuser]) -> None:
    """All that a template may name, changing every time: no document grows with it."""
    catalogue, _ = engine
    url = "http://files.example/{:04d}/" + "x" * 60
    work = tobi("RePEc:aaa:sss:1", *range(1, 101))
    versions: dict[str, Version] = {}
    for n, (sha256, version) in enumerate(sorted(work.versions.items())):
        refs = tuple(Refipo(url.format(k) + str(n), "application/pdf") for k in range(1000))
        versions[sha256] = Version(sha256, version.md5, version.size, version.text, refs=refs)
    whole = replace(work, versions=versions)
    assert write_accepted(catalogue, lot(1, whole)) == []
    assert catalogue.obis("tobi", [work.id])[work.id] == whole
    assert len(whole.names) == 100_000
    (files,) = catalogue.tobi_files()
    assert (len(files.files), len(files.former)) == (1000, 99_000)
