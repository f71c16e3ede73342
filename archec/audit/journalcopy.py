"""Whether a copy of a journal may take the place of one that is damaged or gone.

No sha256 of a journal is recorded, but its batches carry checksums, and what we still have says much.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from archec.catalogue.model import Position, Run
from archec.catalogue.records import RunEnd, RunStart, decode
from archec.errors import CorruptJournal, StorageFailed
from archec.store.journalfile import JournalBatch, read_batches

__all__ = ["objection_to"]

_HEADS = (b'{"type":"run"', b'{"type":"end"')


def objection_to(copy: Path, ours: Path | None, tist: int, run: Run | None, position: Position) -> str:
    """Why the journal at ``copy`` does not fit; empty where it does.

    It must read whole, be that of the run, begin with all batches that can still be read in ``ours``, and
    hold what the catalogue (its ``run`` and ``position``) has followed.
    """
    readable = _readable(ours) if ours is not None else iter(())
    state, started = "running", False
    at_position = tist != position.run
    try:
        for batch in read_batches(copy):
            mine = next(readable, None)
            if mine is not None and (mine.stamp, mine.lines) != (batch.stamp, batch.lines):
                return f"its batch {batch.n} is not the one that is held"
            for line in batch.lines:
                if line.startswith(_HEADS):
                    record = decode(line, f"batch {batch.n}")
                    if isinstance(record, RunEnd):
                        state = record.state
                    elif isinstance(record, RunStart):
                        started = True
                        if record.tist != tist:
                            return f"it is the journal of run {record.tist}"
            if not at_position and batch.n == position.batch:
                if batch.stamp != position.stamp:
                    return f"its batch {batch.n} is not the one that the catalogue knows"
                at_position = True
    except CorruptJournal as error:
        return f"it is damaged, too: {error.message}"
    if next(readable, None) is not None:
        return "it is older: it has less batches than can be read of the one that is held"
    if not started:
        return "it holds no run"
    if not at_position or (run is not None and run.tist != position.run and run.state != state):
        return "it is older: it lacks what the catalogue knows"
    return ""


def _readable(path: Path) -> Iterator[JournalBatch]:
    """The batches before the damage."""
    try:
        yield from read_batches(path)
    except (CorruptJournal, StorageFailed):
        return
