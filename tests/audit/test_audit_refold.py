"""Quiet edits of the catalogue: whatever is changed behind archec's back, check finds it, and only then."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pymongo
import pytest
from audit_support import World, checked, codes, run_sql, verified
from gather_support import archec_inline, change, run, write_papers
from pymongo.database import Database

EDITS = {
    "a history": "UPDATE mi SET state = zeroblob(32), h = NULL WHERE id = 'RePEc:aaa:sss:1'",
    "when something was lost": "UPDATE mi SET last = last - 86400 WHERE state IS NULL",
    "when a template changed": "UPDATE mi SET last = last - 1 WHERE id = 'RePEc:zzz:sss:1'",
    "an incidence": "DELETE FROM entries WHERE id = 'RePEc:zzz:sss:1' AND tist = 1009843200",
    "a return": "UPDATE entries SET back = 1 WHERE id = 'RePEc:zzz:sss:1' AND tist = 1041379200",
    "a run": "UPDATE entries SET run = 7 WHERE id = 'RePEc:aaa:sss:0'",
    "a reason": "UPDATE entries SET note = json_set(note, '$.run', 7) WHERE id = 'RePEc:aaa:sss:0'",
    "a title": "UPDATE versions SET doc = json_set(doc, '$.title', 'Another') WHERE id = 'RePEc:aaa:sss:0'",
    "a checksum": "UPDATE versions SET md5 = zeroblob(16) WHERE id = 'RePEc:aaa:sss:0'",
    "a text": "UPDATE versions SET text = zeroblob(16) WHERE kind = 'fobi' AND text IS NOT NULL",
    "a reference": "DELETE FROM refs WHERE id = 'RePEc:aaa:sss:0'",
    "a reference that is not": "INSERT INTO refs VALUES ('http://h/x', 'RePEc:aaa:sss:0')",
    "a visit": "UPDATE visits SET doc = json_set(doc, '$.outcome', 'gone')",
    "an outcome": "UPDATE visits SET outcome = 'gone'",
    "a due date": "UPDATE mo SET due = due + 1000000",
    "a file that nobody names": "INSERT INTO mo (id, stamp, due) VALUES ('http://h/none', 0, 0)",
    "a media type": "UPDATE mo SET type = 'text/plain' WHERE last IS NOT NULL",
    "a handle": "UPDATE mi SET handle = 'RePEc:AAA:sss:0' WHERE id = 'RePEc:aaa:sss:0'",
    "when it became visible": "UPDATE mi SET stamp = stamp - 1",
    "a report": "UPDATE runs SET doc = json_set(doc, '$.report', '{}')",
    "a data set": "DELETE FROM data_sets WHERE tist = 978307200",
    "how far it follows": "UPDATE position SET until = 7",
    "a checksum of another type": "UPDATE versions SET md5 = 'x'",
    "a handle of another type": "UPDATE mi SET handle = x'ff00'",
    "a tist before 1970": "UPDATE mo SET last = -1 WHERE last IS NOT NULL",
    "a set of another type": "UPDATE sets SET data = 5",
    "what a data set looked at": "UPDATE sets SET data = CAST('{}' AS BLOB)",
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_is_found(world: World, what: str) -> None:
    summary, findings = checked(world)
    assert (summary.clean, findings) == (True, [])
    run_sql(world, EDITS[what])
    summary, findings = checked(world)
    assert not summary.clean, what
    assert any(code.startswith("catalogue-") for code in codes(findings))
    assert archec_inline(world.config, "rebuild").code == 0
    assert checked(world)[1] == []


def test_a_quick_check_leaves_out_the_rest_of_the_catalogue(world: World) -> None:
    run_sql(world, EDITS["a title"])
    assert checked(world, quick=True)[1] == []
    done = archec_inline(world.config, "check", "--quick", "--json")
    assert (done.code, json.loads(done.out.splitlines()[-1])["clean"]) == (0, True)
    run_sql(world, EDITS["a history"])
    assert not checked(world, quick=True)[0].clean


def test_a_catalogue_that_is_behind_is_compared_as_far_as_it_came(world: World) -> None:
    run_sql(world, "PRAGMA wal_checkpoint(TRUNCATE)")
    older = (world.config.base / "data" / "catalogue.sqlite").read_bytes()
    write_papers(world.config, [], title="A third title")
    run(world.config, fetch=False)
    run_sql(world, "PRAGMA wal_checkpoint(TRUNCATE)")
    (world.config.base / "data" / "catalogue.sqlite").write_bytes(older)
    summary, findings = checked(world)
    assert (summary.clean, codes(findings)) == (True, ["catalogue-behind"])
    run_sql(world, EDITS["a title"])
    assert "catalogue-differs" in codes(checked(world)[1])


NEVER_READ = {"mi.due", "mi.type"}
"""Fields of documents in MongoDB that are there because files have them, too."""


def edits_of(document: dict[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    """Every scalar in a document, by its dotted path, with another value of the same type."""
    for name, value in document.items():
        where = f"{path}{name}"
        if name == "_id":
            continue
        if isinstance(value, dict):
            yield from edits_of(value, f"{where}.")
        elif isinstance(value, bool):
            yield where, not value
        elif isinstance(value, int):
            yield where, value + 1
        elif name == "state" and "h" in document:
            yield where, None  # all that is read of it is whether it is there
        elif isinstance(value, str):
            yield where, ("1" if value[:1] == "0" else "0") + value[1:]
        elif isinstance(value, bytes):
            yield where, b"{}"


@pytest.fixture
def on_mongodb(world: World, mongodb_url: str) -> Iterator[tuple[World, Database[dict[str, object]]]]:
    """The archive with its catalogue on a MongoDB server, and that database."""
    there = World(change(world.config, {"database": mongodb_url}), world.places)
    assert archec_inline(there.config, "rebuild").code == 0
    assert checked(there)[1] == []
    with pymongo.MongoClient[dict[str, object]](mongodb_url) as client:
        yield there, client.get_default_database()


def test_a_document_of_the_wrong_shape_is_found_on_mongodb(
    on_mongodb: tuple[World, Database[dict[str, object]]],
) -> None:
    """Whatever lies in a field, it is a finding, and no error of Python's."""
    there, database = on_mongodb
    for name, field, value in (
        ("claims", "tist", None), ("claims", "state", [1]), ("entries", "tist", "x"), ("mi", "h", {"1": 5}),
        ("mo", "due", 1.5), ("sets", "of", 2**62), ("sets", "data", "x"), ("versions", "size", []),
        ("state", "batch", "x"),
    ):  # fmt: skip
        where = {"_id": "position"} if name == "state" else {}
        document = database[name].find_one_and_update(where, {"$set": {field: value}})
        findings = checked(there, quick=name == "state")[1]
        assert any(finding.code.startswith("catalogue-") for finding in findings), (name, field, findings)
        database[name].replace_one({"_id": document["_id"]}, document)
    assert checked(there)[1] == []


@pytest.mark.slow
def test_an_edit_of_any_field_is_found_on_mongodb(
    on_mongodb: tuple[World, Database[dict[str, object]]],
) -> None:
    """The same kinds of edits on the other engine, and more: a field of every kind of document, also with a value of
    another type, and every removal."""
    there, database = on_mongodb
    missed = []
    for name in ("mi", "mo", "entries", "versions", "refs", "visits", "claims", "runs", "data_sets", "sets"):
        collection = database[name]
        document = collection.find_one(sort=[("_id", -1)])
        assert document is not None, name
        where = {"_id": document["_id"]}
        for field, value in edits_of(document):
            for other in (value, [1]):
                collection.update_one(where, {"$set": {field: other}})
                if checked(there)[0].clean and f"{name}.{field}" not in NEVER_READ:
                    missed.append(f"{name}.{field}")
                assert verified(there)[0].files
                collection.replace_one(where, document)
        collection.delete_one(where)
        if checked(there)[0].clean:
            missed.append(f"{name}: a removal")
        collection.insert_one(document)
    assert checked(there)[1] == []
    assert not missed, " ".join(missed)
