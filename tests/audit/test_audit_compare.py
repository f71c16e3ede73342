"""Compare: equal copies, an elder one, a fork, other archives; files that are missing or cut; folders and URLs."""

from __future__ import annotations

import json
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from audit_support import World, clone, tree
from gather_support import Member, archec_inline, make, run, tarball, template

from archec.store.journal import read_batches
from archec.store.layout import journals


def compared(world: World, copy: object, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary, and the differences; neither copy is changed."""
    before = tree(world.config.store_path)
    done = archec_inline(world.config, "compare", copy, "--json", *options)
    *differences, summary = (json.loads(line) for line in done.out.splitlines())
    assert done.code == (0 if summary["sound"] else 6), done
    assert tree(world.config.store_path) == before
    return summary, differences


def grow(world: World, folder: Path, year: int, title: str) -> int:
    """Another run, which notes two templates."""
    members = [Member(f"zzz/sss/{n}.rdf", template(f"RePEc:zzz:sss:{n}", title).encode()) for n in (8, 9)]
    return run(world.config, tarball(folder / f"RePEc_{year}-01-01-{title}.tar", members)).run


def test_equal_copies_by_folder_and_by_url(world: World, pristine: World, served: str) -> None:
    *_, last = read_batches(journals(world.layout)[-1].path)
    for copy in (pristine.config.store_path, served):
        summary, differences = compared(world, copy)
        assert (summary["relation"], differences, summary["unlisted"]) == ("equal", [], False)
        assert summary["common"]["sha256"] == last.sha256
        assert summary["files"] > 15
        assert compared(world, copy, "--heads")[0]["files"] == 0
    text = archec_inline(world.config, "compare", pristine.config.store_path).out.decode()
    assert "They are equal.\n" in text
    assert "no difference" in text


def test_an_elder_copy_and_a_newer_one(world: World, pristine: World, folder: Path) -> None:
    grow(world, folder, 2005, "More")
    summary, differences = compared(world, pristine.config.store_path)
    assert (summary["relation"], differences, summary["sound"]) == ("elder", [], True)
    assert (summary["here"]["runs"], summary["here"]["entries"], summary["copy"]["batches"]) == (1, 2, 0)
    older = World(clone(pristine, folder / "older").config)
    summary, differences = compared(older, world.config.store_path)
    assert (summary["relation"], differences) == ("newer", [])
    assert summary["copy"]["entries"] == 2


def test_a_fork_is_found_by_batch_and_by_entry(world: World, pristine: World, folder: Path) -> None:
    other = clone(pristine, folder / "other")
    common = journals(pristine.layout)[-1].tist
    grow(world, folder, 2005, "Here")
    grow(other, folder, 2005, "There")
    grow(other, folder, 2006, "More")
    summary, differences = compared(world, other.config.store_path)
    assert (summary["relation"], summary["sound"], summary["common"]["run"]) == ("fork", False, common)
    assert (summary["here"]["runs"], summary["copy"]["runs"]) == (1, 2)
    assert [(item["where"], item["id"][-1]) for item in differences] == [
        ("both", "8"), ("both", "9"), ("copy", "8"), ("copy", "9")
    ]  # fmt: skip
    assert all(item["difference"] == "entry" for item in differences)


def test_copies_of_different_archives(world: World, folder: Path) -> None:
    other = World(clone(world, folder / "other").config)
    for journal in journals(other.layout):
        journal.path.unlink()
    (other.config.base / "data" / "catalogue.sqlite").unlink()
    grow(other, folder, 2005, "Other")
    summary, _ = compared(world, other.config.store_path)
    assert (summary["relation"], summary["common"]) == ("unrelated", None)


def test_files_and_journals_that_a_copy_lacks(world: World, pristine: World) -> None:
    for name in ("cut name", "link"):
        world.path(name).unlink()
    cut = world.path("new page")
    cut.chmod(0o644)
    cut.write_bytes(cut.read_bytes()[:-1])
    (world.layout.runs / f"{journals(world.layout)[1].tist}.jsonl.gz").unlink()
    summary, differences = compared(pristine, world.config.store_path)
    assert (summary["relation"], summary["sound"]) == ("equal", False)
    found = sorted((item["difference"], item["where"], item["path"]) for item in differences)
    journal = f"runs/{journals(pristine.layout)[1].tist}.jsonl.gz"
    missing = {world.places["cut name"], world.places["link"], journal}
    assert set(found) == {
        *(("missing", "copy", path) for path in missing), ("wrong-size", "copy", world.places["new page"])
    }  # fmt: skip
    assert summary["differences"] == {"missing": len(differences) - 1, "wrong-size": 1}


def test_no_copy_at_all(world: World, folder: Path) -> None:
    assert archec_inline(world.config, "compare", folder).code == 1
    assert archec_inline(world.config, "compare", world.config.store_path).code == 1


def test_a_copy_without_journals(world: World, pristine: World, served: str) -> None:
    runs, away = pristine.config.store_path / "runs", pristine.config.store_path / "away"
    runs.rename(away)
    for words in (["compare", runs.parent], ["verify", "--repair-from", runs.parent], ["compare", served]):
        done = archec_inline(world.config, *words)
        assert (done.code, "has no journals (runs/) (copy them first)" in done.err) == (1, True), done.err
    away.rename(runs)


def test_a_server_that_lists_no_folder(
    world: World, served: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later runs cannot be seen; everything else can. A server of another layout is refused."""
    monkeypatch.setattr(SimpleHTTPRequestHandler, "list_directory", lambda self, path: self.send_error(403))
    summary, differences = compared(world, served)
    assert (summary["relation"], differences, summary["unlisted"]) == ("equal", [], True)
    other = make(folder / "other", fanout=256)
    done = archec_inline(other, "compare", served)
    assert (done.code, "fan-out" in done.err) == (1, True), done
