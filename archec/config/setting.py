"""A setting as a field of a dataclass, with its kind, help and the default that is shown; and a group of settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any

__all__ = ["group", "names", "setting"]


def setting(default: Any, kind: Callable[[object], Any], doc: str, yaml_default: object = None) -> Any:
    """A field: ``kind`` makes its value of what YAML gives, ``doc`` is its line of help, ``yaml_default`` is the
    default as ``config.yaml`` shows it, where that differs."""
    shown = default if yaml_default is None else yaml_default
    return field(default=default, metadata={"kind": kind, "help": doc, "shown": shown})


def group(factory: type[Any], doc: str) -> Any:
    """A field that holds a group of settings: the dataclass ``factory``, with its line of help."""
    return field(default_factory=factory, metadata={"group": factory, "help": doc})


def names(cls: type[Any], prefix: str = "") -> list[str]:
    """The names of all settings of a dataclass, those in groups as ``group.name``."""
    found: list[str] = []
    for f in dataclasses.fields(cls):
        if "group" in f.metadata:
            found += [f.name, *names(f.metadata["group"], f"{f.name}.")]
        elif f.metadata:
            found.append(prefix + f.name)
    return found
