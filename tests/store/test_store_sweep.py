"""Sweeping: temporary files go, everything else stays."""

from __future__ import annotations

import os
from pathlib import Path

from archec.store.layout import Layout
from archec.store.reader import digest
from archec.store.writer import Placement, Writer, sweep_parts, sweep_runs

TIST = 1352481230


def test_only_temporary_files_go(layout: Layout, tmp_path: Path) -> None:
    ids = [".1-1.part", ".+1-1.part", "a.part", *(f"u:{i}" for i in range(20))]
    with Writer(layout) as writer:
        batch = []
        for obi in ids:
            stored = writer.put(TIST, obi, b"x")
            batch.append(Placement(stored.temp, TIST, obi, stored.sha256))
        writer.commit(batch)
        for obi in ids:
            writer.put(TIST, obi, b"left over")
            writer.put(TIST + 1, obi, b"not swept")
    directory = layout.root / layout.directory(TIST, "u:1")
    (directory / ".+9-9.part").symlink_to(tmp_path)
    (directory / ".+9-8.part").mkdir()
    assert sweep_parts(layout, [TIST, TIST + 77]) == len(ids)
    assert sweep_parts(layout, [TIST]) == 0
    assert sweep_parts(layout, [TIST + 1]) == len(ids)
    for obi in ids:
        assert digest(layout, TIST, obi).size == 1


def test_runs_and_root(layout: Layout) -> None:
    for at in (layout.root, layout.runs):
        (at / ".+7-0.part").touch()
        (at / "kept.part").touch()
    assert sweep_runs(layout) == 2
    assert "kept.part" in os.listdir(layout.runs)
