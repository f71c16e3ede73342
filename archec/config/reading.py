"""Reading a configuration file: YAML, validated whole; an unknown key is refused with the nearest right one."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archec.config import kinds
from archec.config.setting import names
from archec.config.whole import DEFAULT_FILE, Config, plain_path
from archec.errors import ArchecError, ConfigError

__all__ = ["DATABASE_ENVIRONMENT", "ENVIRONMENT", "load", "parse"]

ENVIRONMENT = "ARCHEC_CONFIG"
DATABASE_ENVIRONMENT = "ARCHEC_DATABASE"
_USERINFO = re.compile(r"[^\s/]*:[^\s@]*@")


def load(file: str | Path | None = None, *, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration from ``file``, else ``$ARCHEC_CONFIG``, else ``./config.yaml``.

    Raises :class:`ConfigError` with one line that says what is wrong and where.
    """
    path = Path(file or environ.get(ENVIRONMENT) or DEFAULT_FILE)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such configuration file", hint="make one with 'archec init', or name one with --config"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder, no configuration file", hint=f"is it {path / DEFAULT_FILE}?") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    config = parse(text, path)
    database = environ.get(DATABASE_ENVIRONMENT)
    if not database:
        return config
    try:
        return dataclasses.replace(config, database=kinds.database(database))
    except ValueError as error:
        raise ConfigError(f"{DATABASE_ENVIRONMENT} in the environment: {_shown(database)}: {error}") from error


def parse(text: str, path: Path) -> Config:
    """The configuration from YAML text; ``path`` is for messages and as the base of paths."""
    import yaml  # here, for processes that are given their settings

    try:
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise ConfigError(f"{path}: lists or groups stand too deep in one another") from None
    values = _values(Config, {} if data is None else data, path, "")
    return Config(base=plain_path(path).parent, file=path, **values)


def _values(cls: type[Any], data: object, path: Path, prefix: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        where = f"{prefix.rstrip('.')} must be a group of settings" if prefix else "must hold 'key: value' lines"
        raise ConfigError(f"{path}: {where}")
    fields = {f.name: f for f in dataclasses.fields(cls) if f.metadata}
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in fields:
            raise ConfigError(f"{path}: unknown setting {prefix}{key}", hint=_nearest(str(key), prefix))
        group = fields[key].metadata.get("group")
        if group is not None:
            values[key] = group(**_values(group, {} if value is None else value, path, f"{key}."))
            continue
        try:
            values[key] = fields[key].metadata["kind"](value)
        except (ValueError, ArchecError) as error:
            raise ConfigError(f"{path}: {prefix}{key}: {_shown(value)}: {error}") from error
    return values


def _shown(value: object) -> str:
    """A wrong value for a message: short, and without what may be a password."""
    text = repr(value) if isinstance(value, str) else "null" if value is None else str(value)
    text = _USERINFO.sub("***@", text)
    return text if len(text) <= 200 else text[:200] + "..."


def _nearest(key: str, prefix: str) -> str:
    known = names(Config)
    close = difflib.get_close_matches((prefix + key).lower(), [n.lower() for n in known], 1, 0.5)
    if not close:
        close = difflib.get_close_matches(key.lower(), [n.lower().rpartition(".")[2] for n in known], 1, 0.5)
        full = [n for n in known if close and n.lower().rpartition(".")[2] == close[0]]
    else:
        full = [n for n in known if n.lower() == close[0]]
    return f"did you mean {full[0]}?" if full else "config.yaml documents every setting"
