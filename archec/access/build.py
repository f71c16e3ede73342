"""Builds the configured collections with their sources and loaders."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from archec.access.capability import AccessCapability
from archec.access.collection import Collection, Step
from archec.access.feeding import fed_path
from archec.access.gate import Gate
from archec.access.index_folders import FileSource
from archec.access.loading import ListResolver, Loader, PrefixResolver, WarcLoader, WarcResolver
from archec.access.obi_source import OwnLoader, OwnSource, Wholeness, looking_up
from archec.access.remote import Web
from archec.access.remote_indexes import CdxSource, LiveSource, MementoSource
from archec.access.remote_records import RangeReader, ReplayLoader
from archec.access.sources import AskedSource, LocalSource
from archec.access.wacz import WaczResolver, WaczSource
from archec.access.warcindex import index_path
from archec.archive.opening import Archive, opened
from archec.config import DEFAULT_FILE, CollectionConfig, Config, ResourceConfig, SourceConfig, StepConfig, load
from archec.errors import ArchecError, ConfigError

_log = logging.getLogger("archec.access")


@contextmanager
def opened_access(config: Config, archive: Archive | None) -> Iterator[AccessCapability]:
    """Yields the access layer of a configuration. ``archive`` is the configuration's own archive, if there is one.
    Raises ConfigError."""
    with ExitStack() as stack:
        builder = Builder(config, archive, stack)
        collections = builder.collections(config.collections)
        default = config.access.default
        if default and default not in collections:
            raise ConfigError(f"{config.place('access.default')}: there is no collection {default}")
        known = [*([archive] if archive is not None and archive not in builder.archives else []), *builder.archives]
        gate = Gate(config, partial(looking_up, known, Wholeness(known)))
        yield AccessCapability(config, collections, gate, builder.web)


class Builder:
    """Builds collections from settings. ``archives`` are the open archives that serve as sources."""

    def __init__(self, config: Config, archive: Archive | None, stack: ExitStack) -> None:
        self._config, self._own, self._stack = config, archive, stack
        self.archives: list[Archive] = []
        self.web = Web()

    def collections(self, given: tuple[CollectionConfig, ...]) -> dict[str, Collection]:
        return {
            one.name: Collection(one.name, tuple(map(self._step, one.steps)), fed_path(self._config, one))
            for one in given
        }

    def _step(self, step: StepConfig) -> Step:
        local: list[LocalSource] = []
        remote: list[AskedSource] = []
        loaders: list[Loader] = []
        cache = self._config.access.cache
        for source in step.sources:
            path = self._config.path(source.path)
            index = index_path(path) if source.type == "warc" else path
            if source.type in ("file", "zipnum", "warc", "wacz") and not os.path.exists(index):
                hint = f" ('archec access index {path}' writes it)" if source.type == "warc" else ""
                _log.warning("collection source %s: %s cannot be found%s", source.name, index, hint)
            if source.type in ("file", "zipnum"):
                local.append(FileSource(source.name, source.type, path))
            elif source.type == "archec":
                local.append(self._archec(source, loaders))
            elif source.type in ("cdx", "memento"):
                kind = CdxSource if source.type == "cdx" else MementoSource
                remote.append(kind(source, self.web, None if step.grouped else step.timeout, cache))
            elif source.type == "live":
                remote.append(LiveSource(source.name, self._config.access.live))
            elif source.type == "redis":
                from archec.access.redisindex import RedisSource  # slow to import, and rarely needed

                local.append(RedisSource(source.name, source.redis_url, step.timeout))
            elif source.type == "warc":
                local.append(FileSource(source.name, source.type, index))
                loaders.append(self._warcs(PrefixResolver(str(path)), step, source.name))
            else:
                wacz = WaczSource(source.name, path)
                self._stack.callback(wacz.close)
                local.append(wacz)
                loaders.append(self._warcs(WaczResolver(path), step, source.name))
        loaders += self._loaders(step)
        return Step(tuple(local), tuple(remote), tuple(loaders), step.timeout, step.grouped)

    def _loaders(self, step: StepConfig) -> Iterator[Loader]:
        origins = {source.name: source.replay_url for source in step.sources if source.replay_url}
        for resource in step.resources:
            if resource.kind == "live":
                yield ReplayLoader(self.web, step.timeout, self._config.access.live_methods, origins)
            else:
                yield self._warcs(self._resolver(resource, step.timeout), step, resource.source)

    def _warcs(self, resolver: WarcResolver, step: StepConfig, source: str) -> Loader:
        return WarcLoader(resolver, RangeReader(self.web, step.timeout), source)

    def _archec(self, source: SourceConfig, loaders: list[Loader]) -> LocalSource:
        """A source for an archec archive: the own one, or the one at the source's ``path``. It is empty if the archive
        cannot be opened."""
        archive = self._own
        if source.path:
            path = self._config.path(source.path)
            try:
                folder = path.parent if os.path.exists(path / "layout.json") else path
                file = folder / DEFAULT_FILE if os.path.isdir(path) else path
                archive = self._stack.enter_context(opened(load(file, environ={})))
            except ArchecError as error:
                _log.warning("collection source %s: %s", source.name, error)
                archive = None
        if archive is not None:
            loaders.append(OwnLoader(archive))
            if archive not in self.archives:
                self.archives.append(archive)
        return OwnSource(source.name, archive)

    def _resolver(self, resource: ResourceConfig, timeout: float) -> WarcResolver:
        if resource.kind == "redis":
            from archec.access.redisindex import RedisResolver

            return RedisResolver(resource.place, timeout)
        if "://" in resource.place:
            return PrefixResolver(resource.place)
        path = self._config.path(resource.place)
        if resource.kind == "wacz":
            return WaczResolver(path)
        if resource.kind == "index" or (resource.kind == "path" and os.path.isfile(path)):
            return ListResolver(path)
        return PrefixResolver(str(path))
