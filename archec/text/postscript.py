"""The text of a PostScript file, by Ghostscript's ``txtwrite`` where ``gs`` is on the PATH.

PostScript is a programming language: ``-dSAFER`` keeps it from files, the worker's limits from
memory, time and disk, and the file comes by standard input so that its name is never an option.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import IO

from archec.text.body import Limits
from archec.text.normalise import TextDigest
from archec.text.result import NoText

__all__ = ["digest_postscript", "ghostscript"]

_OPTIONS = (
    "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE", "-dNOPROMPT", "-sstdout=%stderr", "-sDEVICE=txtwrite", "-sOutputFile=-",
    "-_",
)
_CHUNK = 1 << 16
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH")
_NO_TEMPORARY = {"TMPDIR": os.devnull, "TEMP": os.devnull, "LC_ALL": "C"}
"""``-dSAFER`` still lets a program read, write and delete in the temporary directory: it gets none."""


def ghostscript() -> str | None:
    """The path of ``gs``, or None."""
    return shutil.which("gs")


def digest_postscript(stream: Iterator[bytes], digest: TextDigest, limits: Limits) -> None:
    """Feeds the text to ``digest``; NoText ``no-gs``, ``damaged``, ``timeout``, ``too-large``."""
    program = ghostscript()
    if program is None:
        raise NoText("no-gs")
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as text:
        for piece in stream:
            given.write(piece)
        given.seek(0)
        _run(program, given, text, limits)
        text.seek(0)
        _feed(text, digest, limits)


def _run(program: str, given: IO[bytes], text: IO[bytes], limits: Limits) -> None:
    try:
        done = subprocess.run(
            (program, *_OPTIONS),
            stdin=given,
            stdout=text,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _NO_TEMPORARY,
            cwd="/",
            timeout=limits.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoText("timeout") from error
    if done.returncode != 0:
        raise NoText("too-large" if done.returncode == -signal.SIGXFSZ else "damaged")


def _feed(text: IO[bytes], digest: TextDigest, limits: Limits) -> None:
    decoder = getincrementaldecoder("utf-8")("replace")
    total = 0
    while piece := text.read(_CHUNK):
        total += len(piece)
        if total > limits.max_size:
            raise NoText("too-large")
        digest.feed(decoder.decode(piece))
    digest.feed(decoder.decode(b"", True))
