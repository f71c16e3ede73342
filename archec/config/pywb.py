"""Reads a pywb ``config.yaml`` for ``archec serve --pywb`` and converts its collections to archec's settings."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from archec.config.collections import (
    KEYS,
    SOURCE_KEYS,
    CollectionConfig,
    Misfit,
    ResourceConfig,
    check_name,
    read_collections,
)
from archec.config.file import check_texts, load, read_yaml
from archec.config.model import DEFAULT_FILE, Config
from archec.errors import ConfigError, unreadable
from archec.files import read_file

_KNOWN = ("collections", "archive_paths", "index_paths", "collections_root", "enable_auto_colls")
_STEP_KEYS = (*KEYS, "name")
_ALL = "$all"


class Pywb(NamedTuple):
    """The collections of a pywb configuration, and its settings that archec ignores."""

    collections: tuple[CollectionConfig, ...]
    ignored: tuple[str, ...]


def load_with_pywb(config_file: Path | None, pywb_file: Path | None) -> tuple[Config, tuple[str, ...]]:
    """The configuration with the collections of a pywb configuration, which override its own of the same name, and the
    settings of that file that are ignored. Without a pywb file, the configuration alone.

    Without another configuration, pywb's file is used alone: it may itself be the ``config.yaml`` of this directory.
    Raises :class:`ConfigError`.
    """
    if pywb_file is None:
        return load(config_file), ()
    pywb = load_pywb(pywb_file)
    own = Path(DEFAULT_FILE)
    if config_file is None and (not own.exists() or own.samefile(pywb_file)):
        config = Config(base=pywb_file.absolute().parent, file=Path(os.devnull))
    else:
        config = load(config_file)
    names = {one.name for one in pywb.collections}
    kept = tuple(one for one in config.collections if one.name not in names)
    return dataclasses.replace(config, collections=(*kept, *pywb.collections)), pywb.ignored


def load_pywb(path: Path) -> Pywb:
    """Reads the file. Raises :class:`ConfigError`, which names the file and the reason."""
    try:
        data = _with_variables(read_yaml(read_file(path).decode(), path))
        data = {} if data is None else data  # an empty file: pywb serves what is below collections_root
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    except RecursionError:
        raise ConfigError(f"{path}: a list or group contains itself") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must hold 'key: value' lines")
    base = path.absolute().parent
    try:
        check_texts({key: data.get(key) for key in _KNOWN})
        made = msgspec.convert(read_collections(_collections(data, base)), tuple[CollectionConfig, ...])
    except (Misfit, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: collections: {error}") from error
    absolute = tuple(_with_absolute_paths(one, base) for one in made)
    given, root = data.get("collections") or {}, base / _text(data, "collections_root", "collections")
    absolute = tuple(_each_from_its_own(one, root) if given.get(one.name) == _ALL else one for one in absolute)
    others = (f"{name}.{key}" for name, value in given.items() for key in _other_keys(value))
    return Pywb(absolute, (*(str(key) for key in data if key not in _KNOWN), *others))


def _with_variables(value: Any) -> Any:
    """The settings, with variables of the environment in texts that begin with one (``${WARCS}/new``), as in pywb."""
    if isinstance(value, dict):
        return {key: _with_variables(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_variables(item) for item in value]
    return os.path.expandvars(value) if isinstance(value, str) and value.startswith("${") else value


def _collections(data: dict[str, Any], base: Path) -> dict[str, Any]:
    given = data.get("collections") or {}
    if not isinstance(given, dict):
        raise Misfit("must be a group of collections by name")
    archives = data.get("archive_paths") or []
    archives = [archives] if isinstance(archives, str) else archives
    if not isinstance(archives, list):
        raise Misfit("archive_paths must be a path or a list of paths")
    root = base / _text(data, "collections_root", "collections")
    folders = {}
    if data.get("enable_auto_colls", True):
        folders = _folders(root, _text(data, "index_paths", "indexes"), archives)
    made: dict[str, Any] = dict(folders)
    for name, value in given.items():
        if value == _ALL:
            value = _everything(root, folders)
        elif isinstance(value, str):
            value = {"index": value}
        made[name] = _with_archives(value, archives) if isinstance(value, dict) else value
    return made


def _other_keys(collection: Any, own: Collection[str] = KEYS) -> Iterator[str]:
    """The settings of a collection (or a step) that archec ignores (``acl_paths``, ``title``), and those next to a
    sequence, which pywb ignores."""
    if not isinstance(collection, dict):
        return
    steps = collection.get("sequence")
    used = ("sequence",) if isinstance(steps, list) else own
    yield from (str(key) for key in collection if _is_ignored(key, used))
    for step in steps if isinstance(steps, list) else ():
        yield from (f"sequence.{key}" for key in _other_keys(step, _STEP_KEYS))
    group = collection.get("index_group")
    indexes = {f"index_group.{name}": one for name, one in group.items()} if isinstance(group, dict) else {}
    for name, index in {"index": collection.get("index"), **indexes}.items():
        used_keys = _index(index)
        yield from (f"{name}.{key}" for key in (index if isinstance(index, dict) else ()) if key not in used_keys)


def _index(value: Any) -> Any:
    """An index without the settings that archec ignores, if it has a type."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in SOURCE_KEYS:
        return value
    own = ("type", *SOURCE_KEYS[kind])
    return {key: item for key, item in value.items() if not _is_ignored(key, own)}


def _is_ignored(key: Any, own: Collection[str]) -> bool:
    """Whether a setting does not resemble any of ``own``."""
    return not get_close_matches(str(key), own, 1, 0.8)


def _with_absolute_paths(collection: CollectionConfig, base: Path) -> CollectionConfig:
    """The collection with relative paths resolved against the directory of pywb's file."""
    steps = []
    for step in collection.steps:
        sources = tuple(msgspec.structs.replace(one, path=_resolved(one.path, base)) for one in step.sources)
        resources = tuple(msgspec.structs.replace(one, place=_resolved(one.place, base)) for one in step.resources)
        steps.append(msgspec.structs.replace(step, sources=sources, resources=resources))
    return msgspec.structs.replace(collection, steps=tuple(steps))


def _resolved(path: str, base: Path) -> str:
    return str(base / path) if path and "://" not in path else path


def _folders(root: Path, indexes: str, archives: list[Any]) -> dict[str, Any]:
    """Returns a collection for each directory below ``collections_root``, as pywb does."""
    try:
        names = sorted(path.name for path in root.iterdir() if os.path.isdir(path / indexes))
    except OSError:
        return {}
    for name in names:
        try:
            check_name(name)
        except Misfit as error:
            raise Misfit(f"{root / name}: {error}") from error
    places = archives or ["archive"]
    return {
        name: {"index": str(root / name / indexes), "resource": [_below(root / name, place) for place in places]}
        for name in names
    }


def _below(folder: Path, place: Any) -> Any:
    return place if not isinstance(place, str) or "://" in place or "+" in place else str(folder / place)


def _everything(root: Path, folders: dict[str, Any]) -> dict[str, Any]:
    """All collections of a directory as one. If there are none, an index that is empty and reported as such."""
    if not folders:
        return {"index": str(root)}
    return {
        "index_group": {folder: value["index"] for folder, value in folders.items()},
        "archive_paths": [place for value in folders.values() for place in value["resource"]],
    }


def _each_from_its_own(collection: CollectionConfig, root: Path) -> CollectionConfig:
    """The collection ``$all``, with the records of each of its collections loaded from there."""

    def own(resource: ResourceConfig) -> ResourceConfig:
        names = [one.name for one in step.sources if resource.place.startswith(f"{root / one.name}/")]
        return msgspec.structs.replace(resource, source=names[0]) if names else resource

    (step,) = collection.steps
    step = msgspec.structs.replace(step, resources=tuple(map(own, step.resources)))
    return msgspec.structs.replace(collection, steps=(step,))


def _with_archives(value: dict[str, Any], archives: list[Any], own: Collection[str] = KEYS) -> dict[str, Any]:
    """A collection or step without the ignored settings, and with the file's archive paths if it has none. In pywb, a
    timeout below 1 means the default."""
    steps = value.get("sequence")
    if isinstance(steps, list):
        return {
            "sequence": [_with_archives(one, archives, _STEP_KEYS) if isinstance(one, dict) else one for one in steps]
        }
    value = {key: _index(item) for key, item in value.items() if not _is_ignored(key, own)}
    if isinstance(value.get("index_group"), dict):
        value["index_group"] = {name: _index(item) for name, item in value["index_group"].items()}
    timeout = value.get("timeout")
    if isinstance(timeout, str) and re.fullmatch("[0-9]{1,9}", timeout):
        value["timeout"] = timeout = int(timeout)
    if timeout == 0:
        del value["timeout"]
    if archives and not {"archive_paths", "resource"} & set(value):
        value["archive_paths"] = archives
    if isinstance(value.get("archive_paths"), list):
        value["archive_paths"] = [*value["archive_paths"], "$live"]  # pywb always falls back to the web
    elif isinstance(value.get("archive_paths"), str):
        value["archive_paths"] = [value["archive_paths"], "$live"]
    return value


def _text(data: dict[str, Any], key: str, default: str) -> str:
    value = data.get(key, default)
    if not isinstance(value, str) or not value:
        raise Misfit(f"{key} must be the name of a directory")
    return value
