"""The benchmarks run, in small, and say what they should: medians, ratios, goals, who was left out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from readme_blocks import ROOT

SCRIPTS = ROOT / "scripts"
PEER = """
CLUSTERS = {"author-name"}
def decode(data, hint=[]):
    text = data.decode("cp1252", "replace")
    if "template-type" not in text.lower():
        raise RuntimeError("Decoding Error")
    return text
def load(text):
    return [[("template-type", part)] for part in text.lower().split("template-type:")[1:]]
def collect(records):
    return dict(records)
"""


def bench(folder: Path, *arguments: str, path: str | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a benchmark in a folder of its own."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ARCHEC_")}
    small = ("--folder", str(folder), "--touch", "0", "--probe", "50", "--no-wait")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments, *small],
        env={**environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SCRIPTS}", "PATH": path or environ["PATH"]},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    assert not list(folder.glob("archec-bench-*")), "the folder that was worked in is still there"
    return done


def report(folder: Path, *arguments: str, path: str | None = None) -> dict[str, Any]:
    """What a benchmark says in JSON; what every benchmark must say is looked at here."""
    value: dict[str, Any] = json.loads(bench(folder, *arguments, "--json", path=path).stdout)
    assert value["benchmark"] == arguments[0]
    assert value["date"] > "2020"
    assert {"cpu", "memory", "system", "file_system"} <= set(value["machine"])
    assert {"archec", "Python"} <= set(value["versions"])
    assert set(value["load"]) == {"others_cores", "steal_cores", "busy"}
    assert value["measures"]
    for measure in value["measures"]:
        assert min(measure["values"]) <= measure["median"] <= max(measure["values"])
        assert measure["median"] > 0, measure
    return value


def ratios(value: dict[str, Any]) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in value["ratios"]}


def test_parse(tmp_path: Path) -> None:
    (tmp_path / "redif.py").write_text(PEER)
    small = ("parse", "--templates", "300", "--rounds", "2", "--redif-py", str(tmp_path / "redif.py"))
    value = report(tmp_path, *small)
    assert ratios(value)["archec / redif.py + collect, MB/s of CPU"] > 0
    assert value["measures"][0]["group"].startswith("108 files, 0.51 MB, 300 templates")
    assert value["skipped"] == {}
    assert any("synthetic" in warning for warning in value["warnings"])


def test_parse_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.RDF").write_text("Template-Type: ReDIF-Paper 1.0\nHandle: RePEc:a:b:c\n" * 400)
    done = bench(tmp_path, "parse", "corpus", "--rounds", "1", "--redif-py", "nowhere.py")
    assert "1 files, 0.02 MB, 400 templates: corpus" in done.stdout
    assert "skipped:  redif.py: there is no nowhere.py" in done.stdout
    (tmp_path / "none").mkdir()
    assert "none holds no *.rdf" in bench(tmp_path, "parse", "none", code=1).stderr
    assert "corpse is no folder" in bench(tmp_path, "parse", "corpse", code=1).stderr


@pytest.mark.slow
def test_templates(tmp_path: Path) -> None:
    value = report(tmp_path, "templates", "--templates", "400", "--times", "2")
    found = ratios(value)
    assert {"400 templates: first run", "400 templates: rerun", "800 templates: first run"} <= set(found)
    assert found["peak memory, 800 / 400 templates, first run"] > 0.5
    goals = {figure["name"]: figure["goal"] for figure in value["ratios"] if "goal" in figure}
    assert goals["400 templates: first run"] == "at least 5,000 templates/s"
    assert goals["400 templates: first run, memory"] == "at most 512 MiB"


@pytest.mark.slow
def test_fetch(tmp_path: Path) -> None:
    small = ("fetch", "--files", "60", "--size", "3000", "--large-files", "4", "--large-size", "80000", "--rounds", "1")
    if not shutil.which("nginx"):
        assert "there is no nginx" in bench(tmp_path, *small, code=1).stderr
        return
    value = report(tmp_path, *small, "--scrapy", "/nowhere/python")
    assert value["skipped"]["Scrapy"].startswith("/nowhere/python: ")
    for group in ("60 files of 3,000 bytes, 20 hosts", "4 files of 80,000 bytes, 20 hosts"):
        for peer in ("aria2c", "wget"):
            assert (f"{group}: archec / {peer}" in ratios(value)) == (peer not in value["skipped"])


@pytest.mark.slow
def test_catalogue(tmp_path: Path) -> None:
    value = report(tmp_path, "catalogue", "--rows", "20000")
    assert ratios(value)["SQLite, 20,000 documents: page of 1,000 by id, at 90% / at 10%"] > 0
    assert value["skipped"] == {"MongoDB": "not named (--mongodb URL|auto)"}
    few = bench(tmp_path, "catalogue", "--rows", "100", code=1)
    assert "--rows must be 20,000 or more" in few.stderr


@pytest.mark.slow
def test_export(tmp_path: Path) -> None:
    sizes = ("--files", "40", "--size", "3000", "--large-files", "4", "--large-size", "80000", "--series", "2")
    if not all(map(shutil.which, ("wget", "nginx"))):
        assert "there is no " in bench(tmp_path, "export", *sizes, "--rounds", "1", code=1).stderr
        return
    value = report(tmp_path, "export", *sizes, "--rounds", "1")
    assert ratios(value)["40 files of 3,000 bytes, 1 series: archec / wget"] > 0


@pytest.mark.slow
def test_seal(tmp_path: Path) -> None:
    found = ratios(report(tmp_path, "seal", "--entries", "5000", "--night", "100", "--rounds", "1"))
    assert set(found) == {"first seal / zcat | sha256sum", "seal after a night", "memory of a seal"}
    assert found["memory of a seal"] > 1


@pytest.mark.slow
def test_oai(tmp_path: Path) -> None:
    value = report(tmp_path, "oai", "--rows", "20000", "--mongodb-rows", "20000")
    assert ratios(value)["SQLite, 20,000 items: page of 100, at 99% / at 0%"] > 0
    assert set(value["skipped"]) == {"MongoDB"}
    few = bench(tmp_path, "oai", "--rows", "100", code=1)
    assert "--rows and --mongodb-rows must be 20,000 or more" in few.stderr


@pytest.mark.slow
def test_lists(tmp_path: Path) -> None:
    value = report(tmp_path, "lists", "--obis", "60000", "--rounds", "1")
    assert {"60,000 obis: coverage, memory", "60,000 obis: lost, memory"} <= set(ratios(value))
    rows = {measure["name"] for measure in value["measures"]}
    assert {"lost: first row", "changes: first row", "coverage --json: first row", "coverage, all of it"} <= rows
    few = bench(tmp_path, "lists", "--obis", "100", code=1)
    assert "--obis must be 5,000 or more" in few.stderr


@pytest.mark.slow
def test_runs(tmp_path: Path) -> None:
    value = report(tmp_path, "runs", "--runs", "12", "--real", "3", "--archives", "20", "--rounds", "1")
    assert {"status: time", "status: memory", "a run's overhead"} <= set(ratios(value))


@pytest.mark.slow
def test_access(tmp_path: Path) -> None:
    small = ("access", "--urls", "20", "--captures", "3", "--one", "6000", "--requests", "200", "--rounds", "1",
             "--rows", "20000", "--own", "10")  # fmt: skip
    value = report(tmp_path, *small)
    judged = {"all as JSON: the first byte, seconds", "own store / CDXJ, CPU per request"}
    judged |= {"a page of 20,000 rows at 99% / at 0%, seconds", "a source that says nothing: seconds / its time"}
    judged |= {"an index ten times as large: more memory", "a record ten times as large: more memory"}
    assert judged == set(ratios(value))
    assert "pywb" in value["skipped"]
    names = {measure["name"] for measure in value["measures"]}
    assert {"index: archec", "resource: archec", "closest, limit=10: archec", "all as JSON: archec"} <= names


@pytest.mark.slow
def test_fileset(tmp_path: Path) -> None:
    if not shutil.which("nginx"):
        assert "there is no nginx" in bench(tmp_path, "fileset", code=1).stderr
        return
    small = ("--files", "30", "--size", "2000", "--large-files", "2", "--large-size", "3000000", "--rounds", "1")
    value = report(tmp_path, "fileset", *small)
    groups = ("30 files of 2,000 bytes", "2 files of 3,000,000 bytes")
    assert {f"{group}: archec, memory" for group in groups} <= set(ratios(value))
    assert {"pooch", "zenodo_get"} <= set(value["skipped"])


@pytest.mark.slow
def test_verify(tmp_path: Path) -> None:
    value = report(tmp_path, "verify", "--templates", "200", "--files", "3", "--size", "2000", "--rounds", "1")
    assert [name for name in ratios(value) if name.endswith(": archec / md5sum, then sha256sum")] == list(ratios(value))
    assert len(ratios(value)) == 3


def test_a_goal_that_is_missed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from benchmarks.runner import Load, Report

    made = Report("x", "2026", {"cpu": "one"}, {}, load=Load(0.2, 0.0))
    one, other = made.add("g", "a", "MB/s", [2, 3, 30]), made.add("g", "b", "MB/s", [4, 6, 10])
    made.compare(one, other, least=1.0)
    made.compare(one, made.add("g", "c", "MB/s", [6, 6, 6]))
    made.judge("memory", 100, "MiB", most=512)
    text = made.as_text().splitlines()
    assert "load:     others used 0.20 cores on average, steal 0.00" in text
    assert [line.split() for line in text[-3:]] == [
        ["g:", "a", "/", "b", "0.50x", "at", "least", "1.00x", "MISSED"],
        ["g:", "a", "/", "c", "0.50x"],
        ["memory", "100", "MiB", "at", "most", "512", "MiB", "met"],
    ]


def test_the_script_finds_its_python() -> None:
    environ = {**os.environ, "VIRTUAL_ENV": sys.prefix}
    done = subprocess.run(
        [SCRIPTS / "bench", "--help"], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for name in ("parse", "templates", "fetch", "catalogue", "export", "oai", "lists", "verify"):
        assert f"\n    {name} " in done.stdout
