"""The text pool: extracts text in worker processes, so that a file that crashes a parser does no other harm."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from archec.config import TextConfig
from archec.text.checksum import REASONS, TextDone, TextResult, TextTask
from archec.text.sniff import POSTSCRIPT, bare_type, ghostscript, has_text
from archec.workers.child import Limits
from archec.workers.pool import Done, Pool

_EXTRACTOR = "archec.text.extract:extractor"


class TextPool(Pool[TextTask, TextResult]):
    """Takes files by ``extract`` and returns results by ``collect``, in any order. A context manager, for one thread.

    Leaving the context kills the workers; results that were not collected are lost. ``function`` replaces
    :func:`archec.text.extract.extractor` in tests.
    """

    def __init__(self, config: TextConfig, function: str = _EXTRACTOR, *, silence: float = 60.0) -> None:
        self._config = config
        super().__init__(
            function,
            (config.max_size, config.timeout),
            TextResult,
            workers=config.workers,
            limits=Limits(config.max_memory, config.max_size, config.timeout),
            silence=silence,
        )

    def wants(self, media_type: str, size: int) -> bool:
        """Whether a file of this type (from ``sniff``) and size can have a text checksum."""
        if not (self._config.enabled and 0 < size <= self._config.max_size and has_text(media_type)):
            return False
        return bare_type(media_type) != POSTSCRIPT or self._postscript

    def extract(self, key: str, path: str, media_type: str, content_encoding: str = "") -> None:
        """Queues a file for which ``wants`` is true. Returns immediately."""
        self.submit(TextTask(key, Path(path), media_type, content_encoding))

    def collect(self, timeout: float = 0.0) -> list[TextDone]:
        """Returns the available results. Waits up to ``timeout`` seconds for the first one, unless nothing is pending.
        """
        if timeout:
            self.wait(timeout)
        return [_text_done(done) for done in self.results()]

    @cached_property
    def _postscript(self) -> bool:
        return ghostscript() is not None


def _text_done(done: Done[TextTask, TextResult]) -> TextDone:
    if done.error is not None:
        return TextDone(done.item.key, None, "damaged")  # an unexpected exception of a parser
    md5, reason = done.answer or TextResult(None, done.fault)
    return TextDone(done.item.key, md5, "" if md5 else reason if reason in REASONS else "crashed")
