"""An archive for tests of filesets, and the ways in which they look at it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from fileset_platform import Platform

from archec.archive.opening import Archive, opened
from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.config import Config, load
from archec.fileset import json_lines
from archec.fileset.context import IngestOptions
from archec.fileset.json_lines import IngestResult
from archec.fileset.model import IngestRequest
from archec.fileset.run import Counter, Line, run_ingest
from archec.progress import Meter
from archec.store.layout import create


def settings(platform: Platform, **changes: Any) -> dict[str, Any]:
    """A configuration for loopback."""
    host = platform.host
    value: dict[str, Any] = {
        "fetch": {
            "allow_networks": ["127.0.0.0/8"], "delay": "0s", "per_host": 8, "retries": 1, "idle_timeout": "2s",
            "connect_timeout": "2s", "max_size": "1kB", "total_timeout": "1s",
        },
        "fileset": {
            "resolver": platform.url,
            "platforms": {
                "zenodo": {"hosts": [host], "rate": "none"},
                "figshare": {"hosts": ["figshare.example"], "rate": "none"},
            },
        },
        "text": {"enabled": False},
    }  # fmt: skip
    for name, group in changes.items():
        value[name] = {**value.get(name, {}), **group} if isinstance(group, dict) else group
    return value


@dataclass(frozen=True)
class Filesets:
    """An archive, and the platform it asks."""

    config: Config
    platform: Platform

    def ingest(self, *asked: str | dict[str, Any], jobs: int = 1, **options: Any) -> list[IngestResult]:
        """The results of requests: URLs, or objects."""
        found: list[IngestResult] = []
        self.run(asked, lambda result, file: found.extend(filter(None, (result, file))), jobs=jobs, **options)
        return found

    def run(self, asked: Any, emit: Any, *, jobs: int = 1, **options: Any) -> Counter:
        lines: list[Line] = [
            (str(one), json_lines.request(one) if isinstance(one, dict) else IngestRequest(one)) for one in asked
        ]
        return run_ingest(self.config, lines, IngestOptions(**options), Meter(), emit, jobs=jobs)

    @contextmanager
    def archive(self) -> Iterator[Archive]:
        with opened(self.config) as archive:
            yield archive

    def dump(self) -> list[dict[str, Any]]:
        """Everything in the catalogue."""
        with self.archive() as archive:
            return [json.loads(line) for line in dump(archive.catalogue, everything=True)]

    def asked(self) -> list[str]:
        """What the platform was asked for since the last call."""
        found = list(self.platform.requests)
        self.platform.requests.clear()
        return found


def make_archive(folder: Path, platform: Platform, **changes: Any) -> Filesets:
    """An empty archive in a folder."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings(platform, **changes)), encoding="utf-8")
    (folder / "data").mkdir(exist_ok=True)
    config = load(path)
    create(config.store_path)
    open_catalogue(config.database, base=config.base, create=True).close()
    return Filesets(config, platform)
