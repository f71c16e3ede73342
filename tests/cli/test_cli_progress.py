"""Progress on stderr: a line a minute in a log, a bar on a terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from gather_support import Member, make, tarball, template

from archec.terminal.progress import BarMeter, LogMeter, meter_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_a_minute() -> None:
    times = iter([0.0, 0.0, 30.0, 60.0, 90.0, 120.0])
    stream = io.StringIO()
    meter = LogMeter(stream, clock=lambda: next(times))
    meter.phase("reading", 1000)
    for done in (50, 120, 180, 600):
        meter.at(done, "a.rdf")
    assert stream.getvalue().splitlines() == [
        "archec: reading: 120 of 1,000, 2/s, about 440 s left, a.rdf",
        "archec: reading: 600 of 1,000, 5/s, about 80 s left, a.rdf",
    ]


def test_a_phase_whose_length_is_unknown_has_a_rate_only() -> None:
    times = iter([0.0, 0.0, 60.0, 120.0])
    stream = io.StringIO()
    meter = LogMeter(stream, clock=lambda: next(times))
    meter.phase("templates", None)
    meter.at(600)
    meter.at(1200, total=2400)
    assert stream.getvalue().splitlines() == [
        "archec: templates: 600, 10/s",
        "archec: templates: 1,200 of 2,400, 10/s, about 120 s left",
    ]


@pytest.mark.parametrize(("stream", "kind"), [(io.StringIO(), LogMeter), (Terminal(), BarMeter)])
def test_a_terminal_gets_a_bar(stream: io.StringIO, kind: type) -> None:
    with meter_for(stream) as meter:
        assert isinstance(meter, kind)
        meter.phase("reading", 10)
        meter.at(3, "a.rdf")
        meter.phase("fetching", None)
        meter.at(1, total=5)
    assert ("reading" in stream.getvalue()) == (kind is BarMeter)


def test_a_bar_erases_nothing_that_is_printed(tmp_path: Path) -> None:
    """What moves the cursor back on a terminal comes before the report, which stays as it is."""
    config = make(tmp_path / "archive")
    file = tarball(tmp_path / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/sss/1.rdf", template("RePEc:aaa:sss:1"))])
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "archec", "gather", "--config", str(config.file), "--no-fetch", "-f", str(file)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"})
    os.close(theirs)
    shown = b""
    with suppress(OSError), open(ours, "rb", buffering=0) as terminal:  # EIO is the end
        while data := terminal.read(65536):
            shown += data
    assert process.wait() == 0
    before, run, report = shown.partition(b"run         ")
    assert b"\x1b[2K" in before
    assert run
    assert b"took        " in report
    assert b"archec-run" not in report
    assert b"\x1b[1A" not in report
    assert b"\x1b[2K" not in report
