"""What is remembered from run to run may be lost, and may say anything: no command breaks on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from gather_support import archec_inline, make, write_papers
from hostile_support import assert_clean
from hypothesis import example, given
from hypothesis import strategies as st

from archec.archive.runs import Unbegun, unbegun
from archec.archive.unfinished_downloads import left_parts
from archec.config import Config
from archec.gather.received_bodies import received, received_path
from archec.proof.journal_tree import State, remembered
from archec.store.durable import is_temp
from archec.tist import MAX_TIST

_KEYS = st.sampled_from(["time", "message", "run", "batch", "head", "size", "peaks", "forks", "url", "temp", "over"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=9,
)
ANYTHING = st.binary(max_size=99) | _VALUES.map(lambda value: orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))
HOSTILE = {
    "a late time": b'{"time":253402300800,"message":"x"}',
    "no UTF-8": b'{"time":1,"message":"\xff"}',
    "deep": b'{"time":1,"deep":' + b"[" * 9999,
    "controls": rb'{"time":1,"message":"\u001b[31m"}',
}


@pytest.fixture(scope="module")
def config(memory_folder: Callable[[], Path]) -> Config:
    """An archive with one run, which is not to be changed."""
    config = make(memory_folder() / "archive")
    write_papers(config, [])
    (config.data_path / "aaa" / "sss" / "1.rdf").write_text("Template-Type: ReDIF-Paper 1.0\nHandle: RePEc:aaa:sss:1\n")
    assert archec_inline(config, "gather", "--no-fetch").code == 0
    assert archec_inline(config, "verify").code == 0
    return config


@given(ANYTHING)
@example(HOSTILE["a late time"])
@example(HOSTILE["no UTF-8"])
@example(HOSTILE["deep"])
@example(b'{"run":1,"size":-1,"peaks":["x"]}')
@example(b'{"url":"http://h/","temp":"../../x","tist":-1}')
def test_what_makes_no_sense_is_not_believed(config: Config, data: bytes) -> None:
    config.work_path.mkdir(parents=True, exist_ok=True)
    small = config.memory("unbegun.json"), config.memory("sealed.json"), config.work_path / "fileset.jsonl"
    files = (*small, received_path(config.work_path, 7))
    for path in files:
        path.write_bytes(data)
    found = unbegun(config)
    assert found is None or (isinstance(found, Unbegun) and 0 <= found.time <= MAX_TIST)
    state = remembered(files[1])
    assert state is None or (isinstance(state, State) and state.run >= 0)
    assert all(is_temp(Path(path).name) for path in left_parts(config.work_path))
    assert type(received(config.work_path, 7)) is list
    for path in files:
        path.unlink()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_command_breaks(config: Config, name: str) -> None:
    data = HOSTILE[name]
    config.work_path.mkdir(parents=True, exist_ok=True)
    for one in ("unbegun.json", "sealed.json", "fixity.sqlite", "reading.sqlite"):
        for end in ("", "-wal", "-shm"):
            Path(f"{config.memory(one)}{end}").unlink(missing_ok=True)
        config.memory(one).write_bytes(data)
    (config.work_path / "fileset.jsonl").write_bytes(data)
    for command in ("status", "runs", "metrics", "check", "seal", "verify", "gather --no-fetch"):
        done = archec_inline(config, *command.split())
        assert done.code == 0, done
        assert_clean(done)
