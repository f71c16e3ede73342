"""The configuration: one table of settings, validated whole, frozen.

Each setting stands once, as a field with its kind, default and help: in ``sections`` where it is in a group, else in
``whole``. The shipped ``config.yaml`` and what ``archec init`` writes are made from these fields (:func:`as_yaml`),
and :func:`load` refuses unknown keys with the nearest right one. Import from here.
"""

from __future__ import annotations

from archec.config.kinds import Collection, FormatConfig
from archec.config.reading import DATABASE_ENVIRONMENT, ENVIRONMENT, load, parse
from archec.config.sections import FetchConfig, OaiConfig, ServerConfig, TextConfig
from archec.config.whole import DEFAULT_FILE, Config, plain_path
from archec.config.writing import as_yaml

__all__ = [
    "DATABASE_ENVIRONMENT",
    "DEFAULT_FILE",
    "ENVIRONMENT",
    "Collection",
    "Config",
    "FetchConfig",
    "FormatConfig",
    "OaiConfig",
    "ServerConfig",
    "TextConfig",
    "as_yaml",
    "load",
    "parse",
    "plain_path",
]
