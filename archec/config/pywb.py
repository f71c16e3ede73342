"""Reads a pywb ``config.yaml`` for ``archec serve --pywb`` and converts its collections to archec's settings."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from archec.config.collections import KEYS, CollectionConfig, Misfit, read_collections
from archec.config.file import read_yaml
from archec.errors import ConfigError

_KNOWN = ("collections", "archive_paths", "index_paths", "collections_root")
_ALL = "$all"


class Pywb(NamedTuple):
    """The collections of a pywb configuration, and its settings that archec ignores."""

    collections: tuple[CollectionConfig, ...]
    ignored: tuple[str, ...]


def load_pywb(path: Path) -> Pywb:
    """Reads the file. Raises :class:`ConfigError`, which names the file and the reason."""
    try:
        data = read_yaml(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must hold 'key: value' lines")
    try:
        read = read_collections(_collections(data, path.absolute().parent))
        made = msgspec.convert(read, tuple[CollectionConfig, ...])
    except (Misfit, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: collections: {error}") from error
    base = path.absolute().parent
    absolute = tuple(_with_absolute_paths(one, base) for one in made)
    others = (f"{name}.{key}" for name, value in (data.get("collections") or {}).items() for key in _other_keys(value))
    return Pywb(absolute, (*(str(key) for key in data if key not in _KNOWN), *others))


def _collections(data: dict[str, Any], base: Path) -> dict[str, Any]:
    given = data.get("collections") or {}
    if not isinstance(given, dict):
        raise Misfit("must be a group of collections by name")
    archives = data.get("archive_paths")
    root = base / _text(data, "collections_root", "collections")
    folders = _folders(root, _text(data, "index_paths", "indexes"), archives)
    made: dict[str, Any] = dict(folders)
    for name, value in given.items():
        if value == _ALL:
            value = _everything(name, folders)
        elif isinstance(value, str):
            value = {"index": value}
        if isinstance(value, dict):
            others = _other_keys(value)
            value = _with_archives({key: item for key, item in value.items() if key not in others}, archives)
        made[name] = value
    return made


def _other_keys(collection: Any) -> list[str]:
    """The settings of a collection that archec ignores (``acl_paths``, ``title``): all that do not resemble any of its
    own."""
    given = map(str, collection) if isinstance(collection, dict) else ()
    return [key for key in given if not get_close_matches(key, KEYS, 1, 0.8)]


def _with_absolute_paths(collection: CollectionConfig, base: Path) -> CollectionConfig:
    """The collection with relative paths resolved against the directory of pywb's file."""
    steps = tuple(
        msgspec.structs.replace(
            step,
            sources=tuple(
                msgspec.structs.replace(one, path=str(base / one.path)) if one.path else one for one in step.sources
            ),
            resources=tuple(
                msgspec.structs.replace(one, place=str(base / one.place))
                if one.place and "://" not in one.place
                else one
                for one in step.resources
            ),
        )
        for step in collection.steps
    )
    return msgspec.structs.replace(collection, steps=steps)


def _folders(root: Path, indexes: str, archives: Any) -> dict[str, Any]:
    """The collections of the directories below ``collections_root``, each of which is one, as in pywb."""
    try:
        names = sorted(path.name for path in root.iterdir() if (path / indexes).is_dir())
    except OSError:
        return {}
    places = [archives] if isinstance(archives, str) else archives or ["archive"]
    return {
        name: {"index": str(root / name / indexes), "resource": [_below(root / name, place) for place in places]}
        for name in names
    }


def _below(folder: Path, place: Any) -> Any:
    return place if not isinstance(place, str) or "://" in place or "+" in place else str(folder / place)


def _everything(name: object, folders: dict[str, Any]) -> dict[str, Any]:
    if not folders:
        raise Misfit(f"{name}: $all stands for all of collections_root, which has no collections")
    return {
        "index_group": {folder: value["index"] for folder, value in folders.items()},
        "archive_paths": [place for value in folders.values() for place in value["resource"]],
    }


def _with_archives(value: dict[str, Any], archives: Any) -> dict[str, Any]:
    """A collection or step, with the file's archive paths if it has none. In pywb, a timeout below 1 means the
    default."""
    value = dict(value)
    if isinstance(value.get("sequence"), list):
        value["sequence"] = [
            _with_archives(step, archives) if isinstance(step, dict) else step for step in value["sequence"]
        ]
        return value
    if value.get("timeout") == 0:
        del value["timeout"]
    if archives and not {"archive_paths", "resource"} & set(value):
        value["archive_paths"] = archives if isinstance(archives, list) else [archives]
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
