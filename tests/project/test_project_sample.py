"""The sample data set, and the link by which a fresh checkout finds it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from readme_blocks import ROOT, checkout_like

from archec.config import load
from archec.gather.run import Options, gather
from archec.progress import Meter
from archec.store.layout import create

SAMPLE = ROOT / "data" / "sample"


def test_the_current_data_set_of_a_checkout_is_the_sample() -> None:
    link = ROOT / "data" / "current"
    if not link.is_symlink():
        pytest.skip("not a checkout, or one with a data set of its own")
    assert os.readlink(link) == "sample/RePEc"
    assert link.is_dir()


def test_no_address_in_the_sample_is_anybodys() -> None:
    for path in SAMPLE.rglob("*"):
        if path.is_file():
            for host in re.findall(rb"(?:://|@)([^/\s]+)", path.read_bytes()):
                assert host.endswith(b".example"), f"{path}: {host!r}"


def test_a_fresh_checkout_gathers_it(tmp_path: Path) -> None:
    config = load(checkout_like(tmp_path) / "config.yaml", environ={})
    create(config.store_path)
    report = gather(config, Options(fetch=False), Meter())
    assert report.state == "done"
    assert report.problems == []
    assert report.unread == report.nameless == report.duplicates == 0
    assert sum(report.templates.values()) == report.tobis["new"] == 14
    assert len(report.templates) == 7


def test_its_list_of_files_is_whole() -> None:
    listed = re.findall(r"`(smp/[^`]+)`", (SAMPLE / "README.md").read_text(encoding="utf-8"))
    there = [str(path.relative_to(SAMPLE / "RePEc")) for path in (SAMPLE / "RePEc").rglob("*") if path.is_file()]
    assert sorted(listed) == sorted(there)
