"""Progress on stderr: a line a minute in a log, a bar on a terminal."""

from __future__ import annotations

import io

import pytest

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
