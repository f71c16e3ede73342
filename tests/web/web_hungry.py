"""A sink that takes all the memory there is for the body of a URL that says so; importable by a fetching process."""

from __future__ import annotations

from archec.store.layout import Layout
from archec.store.writer import BodySink, body_sink
from archec.web.outcome import TempLike


class HungrySink:
    def __init__(self, sink: BodySink) -> None:
        self._sink = sink
        self._eaten: list[bytearray] = []

    def temp(self, url: str) -> TempLike:
        while "hungry" in url:
            self._eaten.append(bytearray(1 << 26))
        return self._sink.temp(url)


def hungry_sink(layout: Layout, run: int) -> HungrySink:
    return HungrySink(body_sink(layout, run))
