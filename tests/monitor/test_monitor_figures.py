"""Figures that mean the same are the same number: in the journal, lists, runs, status, metrics and the report."""

from __future__ import annotations

import gzip
import json
import random
import re
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gather_site import Answer, Site, page, pdf
from gather_support import archec_inline, make, run, template, write_papers
from prometheus_client.parser import text_string_to_metric_families

from archec.config import Config


def told(config: Config, *arguments: str) -> list[Any]:
    done = archec_inline(config, *arguments, "--json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def metrics(config: Config) -> dict[tuple[str, ...], float]:
    text = archec_inline(config, "metrics").out.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


def change_world(world: random.Random, config: Config, site: Site) -> None:
    """Other templates, other files: new, changed, gone, back, refused, broken, and URLs that are none."""
    answers = (
        lambda: pdf(str(world.randrange(3))), lambda: page("no", 403), lambda: page("sick", 503),
        lambda: page("gone", 404), lambda: Answer(fault="reset"), lambda: Answer(200, b""),
    )  # fmt: skip
    folder = config.data_path / "aaa"
    folder.mkdir(exist_ok=True)
    for number in range(8):
        path = folder / f"{number}.rdf"
        site[f"/{number}"] = world.choice(answers)()
        if world.random() < 0.2:
            path.unlink(missing_ok=True)
            continue
        urls = [site.url(f"/{number}"), *world.choices([f"file:///c/{number}", site.url("/0")], k=world.randrange(3))]
        path.write_text(template(f"RePEc:aaa:sss:{number}", f"Version {world.randrange(2)}", urls))


def agree(config: Config, last: dict[str, Any]) -> None:
    """Every figure of the last run and of the archive, from every place that has it."""
    runs, (status,), (report,), found = *(told(config, *c) for c in (["runs"], ["status"], ["report"])), metrics(config)
    newest = runs[0]
    with gzip.open(sorted((config.store_path / "runs").glob("*.jsonl.gz"))[-1], "rt") as file:
        journalled = [json.loads(line) for line in file if line.startswith('{"type":"end"')][-1]["report"]
    (one,) = told(config, "runs", "last")
    assert journalled == one["report"] == report["run"]["report"]
    for name in ("run", "state", "tobis", "fobis", "held_back", "fetch", "stored_bytes"):
        assert newest[name] == status["last"][name] == report["run"][name] == journalled[name], name
    for name in ("tobis", "fobis"):
        assert {k: n for k, n in newest[name].items() if n and k != "held_back"} == last[name]
        assert {key[1]: n for key, n in found.items() if key[0] == f"archec_last_run_{name}"} == newest[name]
    assert (newest["fetch"]["requests"], newest["fetch"]["bytes"]) == (last["requests"], last["fetched_bytes"])
    assert found["archec_last_run_requests",] == last["requests"]
    assert found["archec_last_run_fetched_bytes",] == last["fetched_bytes"]
    assert found["archec_last_run_stored_bytes",] == last["stored_bytes"] == newest["stored_bytes"]
    assert found["archec_stored_bytes",] == status["stored_bytes"] == report["growth"][-1]["stored_bytes"]
    assert status["stored_bytes"] == sum(run["stored_bytes"] for run in runs)
    obis = status["obis"]
    assert {key[1:]: n for key, n in found.items() if key[0] == "archec_obis"} == {
        ("tobi", "held"): obis["tobis_held"], ("tobi", "lost"): obis["tobis_lost"],
        ("fobi", "held"): obis["fobis_held"], ("fobi", "lost"): obis["fobis_lost"],
        ("fobi", "never"): obis["fobis_never"],
        ("fileset", "held"): obis["filesets_held"], ("fileset", "lost"): obis["filesets_lost"],
    }  # fmt: skip
    assert (report["growth"][-1]["tobis_held"], report["growth"][-1]["fobis_held"]) == (
        obis["tobis_held"], obis["fobis_held"],
    )  # fmt: skip
    incidences(config, runs, report, obis)


def incidences(config: Config, runs: list[Any], report: dict[str, Any], obis: dict[str, int]) -> None:
    """Sums over all runs, against the lists of incidences and of what is lost, and the dump."""
    changes = told(config, "changes")
    for kind, name in (("tobi", "tobis"), ("fobi", "fobis")):
        listed = Counter(one["what"] for one in changes if one["kind"] == kind)
        summed = Counter[str]()
        for one in runs:
            summed.update({what: one[name].get(what, 0) for what in ("new", "changed", "lost", "returned")})
            summed["changed"] += sum(one[name].get(how, 0) for how in ("cosmetic", "file-url") if name == "tobis")
        assert +summed == listed, name
        drawn = Counter[str]()
        for one in report["incidences"]:
            drawn.update(one[name])
        if name == "tobis":
            assert +drawn == listed
        held = listed["new"] + listed["returned"] - listed["lost"]
        assert held == obis[f"{name}_held"]
        assert len(told(config, "lost", "--kind", kind)) == obis[f"{name}_lost"]
    rows = told(config, "coverage")
    states = ("held", "lost", "gone", "unreachable", "forbidden", "never", "bad_urls", "other")
    for row in rows:
        assert row["files"] == sum(row[state] for state in states)
    texts = [path.read_text() for path in config.data_path.rglob("*.rdf")]
    assert rows[-1]["works"] == len(texts)
    bad = [len(set(re.findall(r"^File-URL: (file:.*)$", text, re.M))) for text in texts]
    assert rows[-1]["bad_urls"] == sum(bad)
    drawn_works = sum(row["works"] for row in report["coverage"])
    assert drawn_works == rows[-1]["works"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 40))
def test_figures_agree(seed: int, memory_folder: Callable[[], Path]) -> None:
    world = random.Random(seed)
    settings = {"lost_confirmations": 1, "max_loss_least": 100, "max_loss": 1.0}
    config = make(memory_folder() / "a", settings)
    with Site() as site:
        for _ in range(4):
            change_world(world, config, site)
            done = archec_inline(config, "gather")
            assert done.code in (0, 3), done.err
            agree(config, json.loads(done.err.splitlines()[-1].removeprefix("archec-run ")))


def test_a_run_that_did_not_begin_is_known_until_the_next_one(memory_folder: Callable[[], Path]) -> None:
    config = make(memory_folder() / "a")
    assert archec_inline(config, "gather").code == 0
    unclear = config.base / "unclear"
    unclear.mkdir()
    (unclear / "RePEc_03-04-2024.tar").touch()
    assert archec_inline(config, "gather", "-f", unclear).code == 2
    assert metrics(config)["archec_unbegun_run_time_seconds",] == 0
    assert archec_inline(config, "gather", "-f", "/nowhere.tar").code == 1
    newest, _ = told(config, "runs")
    assert (newest["run"], newest["state"]) == (None, "failed")
    assert "/nowhere.tar" in newest["message"]
    assert "failed before it began" in archec_inline(config, "runs").err
    assert "failed before it began" in archec_inline(config, "status").out.decode()
    assert metrics(config)["archec_unbegun_run_time_seconds",] > 0
    assert archec_inline(config, "gather").code == 0
    assert len(told(config, "runs")) == 2
    assert metrics(config)["archec_unbegun_run_time_seconds",] == 0


def test_the_list_of_runs_says_what_was_retracted(memory_folder: Callable[[], Path]) -> None:
    config = make(memory_folder() / "a")
    write_papers(config, ["http://h/x"])
    wrong = run(config, fetch=False).run
    assert archec_inline(config, "retract", wrong, "--reason", "not ours").code == 0
    newest, older = told(config, "runs")
    assert (newest["message"], older["data_set_retracted"]) == (
        f"the data set of run {wrong} is retracted: 1 template changed", "not ours"
    )  # fmt: skip
    assert "its data set does not count: not ours" in archec_inline(config, "runs").out.decode()


def test_a_data_set_that_was_read_twice_is_retracted_for_both_runs(memory_folder: Callable[[], Path]) -> None:
    config = make(memory_folder() / "a")
    write_papers(config, ["http://h/x"])
    paths = [config.base / f"RePEc_2010-01-0{day}.tar" for day in (1, 1, 2)]
    for path in paths:
        with tarfile.open(path, "w") as tar:
            tar.add(config.data_path, "RePEc")
        assert archec_inline(config, "gather", "--no-fetch", "-f", path).code == 0
    third, second, first = (row["run"] for row in told(config, "runs"))
    assert archec_inline(config, "retract", first, "--reason", "not ours").code == 0
    listed = {row["run"]: row["data_set_retracted"] for row in told(config, "runs")[1:]}
    assert listed == {third: "", second: "not ours", first: "not ours"}
    assert [told(config, "runs", row)[0]["data_set_retracted"] for row in listed] == ["", "not ours", "not ours"]
