"""Received: the hops of a run that are not in its journal yet, in the work directory, so that a kill costs no request.

Bodies lie in the obi store under temporary names already; with its hop a body can be taken up by whoever carries on
with the run, or closes it. Not durable, and need not be: what a power failure takes is asked for again, and a body is
compared with the checksum of its hop before it is taken up.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec

from archec.archive.follow import LastRun
from archec.archive.ledger import left_parts
from archec.config import Config
from archec.errors import StorageFailed
from archec.store.layout import Layout
from archec.store.writer import sweep_parts, sweep_runs
from archec.web.task import Hop, Hops
from archec.workers.pipe import Inbox, Nonsense, encode, frame

_MOST = 32_000_000
"""Bytes of the file after which it is begun again with what is still needed."""
_CHUNK = 1 << 20
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_decoder = msgspec.msgpack.Decoder(Hops)


class Received:
    """The hops of a run, to append to. Whoever comes to leave it has committed what there was: the file goes."""

    def __init__(self, work: Path, run: int) -> None:
        self._path, self._size = received_path(work, run), 0
        try:
            self._file = os.open(self._path, _FLAGS, 0o600)
        except OSError as error:
            raise StorageFailed(f"{self._path}: {error.strerror}") from error

    def __enter__(self) -> Received:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def add(self, hops: Iterable[Hop]) -> None:
        """Appends hops."""
        data = frame(encode(Hops([(0, os.fsencode(hop.temp), hop._replace(temp="", head=b"")) for hop in hops])))
        try:
            self._size += os.write(self._file, data)
        except OSError as error:
            raise StorageFailed(f"{self._path}: {error.strerror}") from error

    @property
    def is_large(self) -> bool:
        """Whether it is time to begin again."""
        return self._size > _MOST

    def restart(self, hops: Iterable[Hop]) -> None:
        """Everything is in the journal but these hops."""
        os.ftruncate(self._file, 0)
        self._size = 0
        self.add(hops)


def received_path(work: Path, run: int) -> Path:
    """Where the hops of a run are kept."""
    return work / f"{run}.received"


def received(work: Path, run: int) -> list[Hop]:
    """The hops that a killed run has left, each URL's last one; none where there is no such file. What was cut off at
    its end is left out."""
    last: dict[str, Hop] = {}
    inbox = Inbox()
    try:
        with received_path(work, run).open("rb") as file:
            while data := file.read(_CHUNK):
                for message in inbox.feed(data):
                    for _, temp, hop in _decoder.decode(message).items:
                        last[hop.url] = hop._replace(temp=os.fsdecode(temp))
    except (OSError, Nonsense, msgspec.MsgspecError):
        pass
    return list(last.values())


def sweep(config: Config, layout: Layout, last: LastRun) -> None:
    """Removes the temporary files and the scratch space that a killed run left, but downloads of data
    sets, with which the next ingest goes on."""
    sweep_runs(layout)
    shutil.rmtree(config.work_path / str(last.journal.tist), ignore_errors=True)
    with suppress(OSError):
        received_path(config.work_path, last.journal.tist).unlink()
    if not last.journal.finished:
        tists = {last.journal.tist}
        if last.start is not None and last.start.data_set:
            tists.add(last.start.data_set)
        sweep_parts(layout, tists, left_parts(config.work_path))
