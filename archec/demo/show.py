"""Runs the demo: an archive in a directory, gathered three times from the web site over real HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from archec.archive.report import Report
from archec.config import DEFAULT_FILE, Config, as_yaml, load
from archec.demo.papers import PAPERS, STAGES, write_data_set
from archec.demo.site import DemoSite
from archec.errors import UsageError
from archec.gather.options import Options
from archec.gather.run import gather
from archec.progress import Meter
from archec.store.layout import create

_SETTINGS: dict[str, object] = {
    "name": "archec demo",
    # Years pass in seconds: files are due again immediately, and a second visit confirms a loss.
    "lost_grace": "0s",
    "fetch.revisit_min": "0s",
    "fetch.revisit_max": "0s",
    "fetch.delay": "0s",
    "fetch.retries": 0,
    "fetch.contact": "mailto:nobody@example.org",
    "fetch.allow_networks": ["127.0.0.0/8"],
}


_STORIES = (
    "a new archive gathers the demo's RePEc for the first time",
    "a paper was revised, another removed, a template has disappeared, a server is overloaded",
    "the template is back, the server answers again, and the removed paper is still gone: it is lost",
)


def make_archive(directory: Path) -> Config:
    """A new archive for the demo. Raises UsageError if ``directory`` is not empty."""
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty", hint="use a new directory: archec demo DIR")
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / DEFAULT_FILE
    path.write_text(as_yaml(_SETTINGS), encoding="utf-8")
    config = load(path, environ={})
    create(config.store_path)
    config.data_path.mkdir(parents=True)
    config.path(config.tarballs).mkdir(parents=True)
    return config


def play(config: Config, meter: Meter) -> Iterator[tuple[int, str, Report]]:
    """Gathers the stages one after the other: yields the number of each, the changes before it, and its report."""
    with DemoSite() as site:
        config = dataclasses.replace(config, fetch=dataclasses.replace(config.fetch, proxy=""))
        for stage, story in zip(STAGES, _STORIES, strict=True):
            site.stage = stage
            write_data_set(config.data_path, stage, site.base_url)
            yield stage, story, gather(config, Options(), meter)


def papers_that(word: str) -> list[str]:
    return [paper.handle for paper in PAPERS if word in paper.story]
