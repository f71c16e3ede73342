"""A seal: a small statement about everything in the journals of an archive, which later shows whether it is still
there.

It is a checkpoint (c2sp.org/tlog-checkpoint): the size and the root of the Merkle tree whose leaves are the lines of
the journals, batch after batch in the order of the chain, without the ``batch`` lines. Further lines contain the last
batch, the numbers of runs and batches, and the time of the seal.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import NamedTuple

from archec.errors import BadName, UsageError, storage_errors
from archec.proof.note import SignedNote, hash_from, parse_note
from archec.store.journal import NO_BATCH
from archec.tist import iso, parse_when

_HEAD = re.compile(r"archec-head ([0-9]{1,12}) ([0-9]{1,12}) ([0-9a-f]{64})")
_COUNTS = re.compile(r"archec-counts runs=([0-9]{1,12}) batches=([0-9]{1,12})")
_DATE = re.compile(r"archec-date ([0-9TZ:-]{20})")
_SIZE = re.compile(r"0|[1-9][0-9]{0,17}")


class Seal(NamedTuple):
    """The statement of a seal: ``size`` lines of journals have this ``root``; their last batch is ``batch`` of ``run``,
    with the sha256 ``head``; there are ``runs`` runs and ``batches`` batches; ``made`` is a tist."""

    origin: str
    size: int
    root: bytes
    run: int = 0
    batch: int = 0
    head: str = NO_BATCH
    runs: int = 0
    batches: int = 0
    made: int = 0

    def note(self) -> SignedNote:
        """The checkpoint, unsigned."""
        return SignedNote(
            f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"
            f"archec-head {self.run} {self.batch} {self.head}\n"
            f"archec-counts runs={self.runs} batches={self.batches}\n"
            f"archec-date {iso(self.made)}\n"
        )


class SealFile(NamedTuple):
    """A seal that was read from a file, with its signatures."""

    seal: Seal
    note: SignedNote


def parse_seal(data: bytes) -> SealFile:
    """Parses a seal. Raises ValueError with the reason if it is invalid."""
    note = parse_note(data)
    lines = note.text.split("\n")[:-1]
    if len(lines) < 3 or not lines[0] or not _SIZE.fullmatch(lines[1]):
        raise ValueError("it has no origin, size and root")
    seal = Seal(lines[0], int(lines[1]), hash_from(lines[2], "root"))
    for line in lines[3:]:
        if head := _HEAD.fullmatch(line):
            seal = seal._replace(run=int(head[1]), batch=int(head[2]), head=head[3])
        elif counts := _COUNTS.fullmatch(line):
            seal = seal._replace(runs=int(counts[1]), batches=int(counts[2]))
        elif date := _DATE.fullmatch(line):
            try:
                seal = seal._replace(made=parse_when(date[1]))
            except BadName as error:
                raise ValueError(error.message) from error
    return SealFile(seal, note)


def read_seal(path: Path) -> SealFile:
    """Reads the seal in a file. Raises UsageError if it contains none."""
    with storage_errors(path):
        data = path.read_bytes()
    try:
        return parse_seal(data)
    except ValueError as error:
        raise UsageError(f"{path}: is not a seal: {error}") from error
