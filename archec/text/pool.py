"""The text pool: worker processes that take text from files, so that a file that breaks a parser harms nothing else."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from archec.config import TextConfig
from archec.text.checksum import REASONS, TextDone, TextResult, TextTask
from archec.text.sniff import POSTSCRIPT, bare_type, ghostscript, has_text
from archec.workers.child import Limits
from archec.workers.pool import Done, Pool

_EXTRACTOR = "archec.text.extract:extractor"


class TextPool:
    """Takes files by ``submit``, gives results by ``collect``, in any order; a context manager, for one thread.

    Leaving it ends the workers at once; results not collected by then are lost. ``function`` is called in each worker
    in place of :func:`archec.text.extract.extractor`, for tests.
    """

    def __init__(self, config: TextConfig, function: str = _EXTRACTOR, *, silence: float = 60.0) -> None:
        self._config = config
        self._pool: Pool[TextTask, TextResult] = Pool(
            function,
            (config.max_size, config.timeout),
            TextResult,
            workers=config.workers,
            limits=Limits(config.max_memory, config.max_size, config.timeout),
            silence=silence,
        )

    @property
    def pending(self) -> int:
        """Files submitted whose results have not been collected."""
        return self._pool.pending

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers there are."""
        return self._pool.pids

    def wants(self, media_type: str, size: int) -> bool:
        """Whether such a file can have a text checksum; ``media_type`` is what ``sniff`` said of it."""
        if not (self._config.enabled and 0 < size <= self._config.max_size and has_text(media_type)):
            return False
        return bare_type(media_type) != POSTSCRIPT or self._postscript

    def submit(self, key: str, path: str, media_type: str, content_encoding: str = "") -> None:
        """Queues a file that it wants; returns at once."""
        self._pool.submit(TextTask(key, Path(path), media_type, content_encoding))

    def collect(self, timeout: float = 0.0) -> list[TextDone]:
        """The results there are; waits up to ``timeout`` seconds for the first one.

        Returns at once, with an empty list, if nothing is pending.
        """
        if timeout:
            self._pool.wait(timeout)
        return [_text_done(done) for done in self._pool.results()]

    def close(self) -> None:
        """Ends all workers at once. May be called twice."""
        self._pool.close()

    def __enter__(self) -> TextPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _postscript(self) -> bool:
        return ghostscript() is not None


def _text_done(done: Done[TextTask, TextResult]) -> TextDone:
    if done.error is not None:
        return TextDone(done.item.key, None, "damaged")  # a fault of a parser that it does not name: the file's
    md5, reason = done.answer or TextResult(None, done.fault)
    return TextDone(done.item.key, md5, "" if md5 else reason if reason in REASONS else "crashed")
