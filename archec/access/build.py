"""Collections as configured: their sources and loaders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from archec.access.capability import AccessCapability
from archec.access.collection import Collection, Step
from archec.access.folders import FileSource
from archec.access.gate import Gate
from archec.archive.opening import Archive
from archec.config import CollectionConfig, Config, SourceConfig, StepConfig
from archec.errors import ConfigError


@contextmanager
def opened_access(config: Config, archive: Archive | None) -> Iterator[AccessCapability]:
    """The access layer of a configuration; ``archive`` is the own one. Raises ConfigError."""
    collections = make_collections(config, config.collections)
    default = config.access.default
    if default and default not in collections:
        raise ConfigError(f"{config.place('access.default')}: there is no collection {default}")
    gate = Gate(config)
    gate.check()
    yield AccessCapability(config, collections, gate)


def make_collections(config: Config, given: tuple[CollectionConfig, ...]) -> dict[str, Collection]:
    """The collections by name."""
    return {one.name: Collection(one.name, tuple(_step(config, step) for step in one.steps)) for one in given}


def _step(config: Config, step: StepConfig) -> Step:
    sources = tuple(_source(config, source) for source in step.sources)
    return Step(step.name, sources, (), (), step.timeout, step.grouped)


def _source(config: Config, source: SourceConfig) -> FileSource:
    if source.type in ("file", "zipnum"):
        return FileSource(source.name, source.type, config.path(source.path))
    raise ConfigError(f"{config.place('collections')}: {source.name}: type {source.type}")
