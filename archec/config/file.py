"""The configuration file: YAML, checked against the model; the documented default file is generated from the model."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from archec.config.collections import Misfit
from archec.config.model import DEFAULT_FILE, Config, plain_path, setting_names
from archec.config.types import Database
from archec.errors import ArchecError, ConfigError, unreadable
from archec.files import read_file

_FILE_VARIABLE = "ARCHEC_CONFIG"
_DATABASE_VARIABLE = "ARCHEC_DATABASE"
_USERINFO = re.compile(r"[^\s/]*:[^\s@]*@")
_NO_TEXT = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f\\ud800-\\udfff]")


def load(file: str | Path | None = None, *, environ: Mapping[str, str] = os.environ) -> Config:
    """Reads the configuration from ``file``, else ``$ARCHEC_CONFIG``, else ``./config.yaml``.

    Raises :class:`ConfigError` with a one-line message that names the place.
    """
    path = Path(file or environ.get(_FILE_VARIABLE) or DEFAULT_FILE)
    try:
        data = read_file(path)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such configuration file", hint="create one with 'archec init', or pass one with --config"
        ) from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path}: is a directory, not a configuration file", hint=f"is it {path / DEFAULT_FILE}?"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        config = parse(data.decode(), path)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8", hint="save it in this encoding") from error
    return with_environment(config, environ)


def with_environment(config: Config, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration with the database that the environment names, if any. Raises :class:`ConfigError`."""
    database = environ.get(_DATABASE_VARIABLE)
    if not database:
        return config
    where = f"{_DATABASE_VARIABLE} in the environment"
    return dataclasses.replace(config, database=_checked(database, Database, where))


def parse(text: str, path: Path) -> Config:
    """The configuration from YAML text; ``path`` is for messages and as the base of paths."""
    return Config(base=plain_path(path).parent, file=path, **_settings(Config, read_yaml(text, path), path, ""))


def read_yaml(text: str, path: Path) -> Any:
    """Parses YAML text. Raises :class:`ConfigError`, also for a repeated key, of which YAML would silently use the
    last."""
    import yaml  # here, because worker processes do not need it

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _check_keys(node, path)
        return loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, AttributeError, LookupError, OverflowError) as error:  # of 2027-02-30, !!bool x
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise ConfigError(f"{path}: lists or groups are nested too deeply") from None


def _check_keys(node: Any, path: Path) -> None:
    import yaml

    left, seen = [node], set[int]()
    while left:
        node = left.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                left.append(value)
                if not isinstance(key, yaml.ScalarNode):
                    continue
                line = key.start_mark.line + 1
                if key.value in lines:
                    raise ConfigError(
                        f"{path}:{line}: {key.value} is given twice, first in line {lines[key.value]}",
                        hint="put what belongs together under one key",
                    )
                lines[key.value] = line


def _settings(cls: type[Any], data: Any, path: Path, prefix: str) -> dict[str, Any]:
    """The arguments for a dataclass of settings; ``prefix`` is the name of its group followed by a dot.

    One :class:`ConfigError` names everything that is wrong."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        where = f"{prefix.rstrip('.')} must be a group of settings" if prefix else "must hold 'key: value' lines"
        raise ConfigError(f"{path}: {where}")
    known = {f.name: f for f in dataclasses.fields(cls) if f.metadata}
    types = get_type_hints(cls, include_extras=True)
    values: dict[str, Any] = {}
    wrong: list[ConfigError] = []
    for key, value in data.items():
        try:
            if key not in known:
                raise ConfigError(f"{path}: unknown setting {prefix}{key}", hint=_nearest(str(key), prefix))
            group = known[key].metadata.get("group")
            if group is not None:
                values[key] = group(**_settings(group, value, path, f"{key}."))
            else:
                values[key] = _checked(value, types[key], f"{path}: {prefix}{key}")
        except ConfigError as error:
            wrong.append(error)
    if len(wrong) > 1:
        raise ConfigError(f"{path}: " + "; ".join(str(error).removeprefix(f"{path}: ") for error in wrong))
    if wrong:
        raise wrong[0]
    return values


def _checked(value: Any, kind: Any, where: str) -> Any:
    """A value converted to a type of :mod:`archec.config.types`; ``where`` is the start of error messages."""
    meta: msgspec.Meta = kind.__metadata__[0]
    try:
        check_texts(value)
        read = (meta.extra or {}).get("read")
        return msgspec.convert(read(value) if read else value, kind)
    except msgspec.ValidationError as error:
        problem = f"{meta.description}, not empty" if value is None else str(meta.description)
        if "$" in str(error) and "regex" not in str(error):  # the error names a place within the value
            problem += f" ({error})"
        raise ConfigError(f"{where}: {_shown(value)}: {problem}") from error
    except (ValueError, ArchecError) as error:
        says_what = isinstance(error, Misfit) or str(error).startswith(repr(value))
        problem = _USERINFO.sub("***@", str(error))
        raise ConfigError(f"{where}: {problem if says_what else f'{_shown(value)}: {problem}'}") from error


def check_texts(value: object) -> None:
    """Raises :class:`Misfit` if a text in the value, or in its lists and groups, has control characters."""
    left, seen = [value], set[int]()
    while left:
        one = left.pop()
        if isinstance(one, str) and _NO_TEXT.search(one):
            raise Misfit(f"{_shown(one)}: must be text without control characters")
        if isinstance(one, (list, dict)) and id(one) not in seen:  # an alias may be within itself
            seen.add(id(one))
            left += [*one, *one.values()] if isinstance(one, dict) else one


def _shown(value: object) -> str:
    """An invalid value for a message: shortened, and without anything that may be a password."""
    text = repr(value) if isinstance(value, str) else "null" if value is None else str(value)
    text = _USERINFO.sub("***@", text)
    return text if len(text) <= 200 else text[:200] + "..."


def _nearest(key: str, prefix: str) -> str:
    """The hint for an unknown setting: the most similar name, with or without its group."""
    names = {name.lower(): name for name in setting_names()}
    bare = {name.rpartition(".")[2]: names[name] for name in reversed(names)}
    for given, candidates in ((prefix + key, names), (key, bare)):
        for close in difflib.get_close_matches(given.lower(), candidates, 1, 0.72):
            return f"did you mean {candidates[close]}?"
    return "config.yaml documents every setting"


def as_yaml(overrides: Mapping[str, object] | None = None) -> str:
    """A documented ``config.yaml`` with every setting at its default, or at ``overrides[name]``."""
    lines = [
        "# archec configuration. Every setting is listed with its default; any line may be omitted.",
        "# Relative paths are relative to the directory of this file. Sizes: 500kB, 20MB, 2GiB.",
        "# Durations: 90s, 15m, 2h30m, 7d. Do not put secrets here: use the environment.",
        *_documented(Config, "", overrides or {}),
    ]
    return "\n".join(lines) + "\n"


def _documented(cls: type[Any], prefix: str, overrides: Mapping[str, object]) -> list[str]:
    import yaml

    lines: list[str] = []
    indent = "  " if prefix else ""
    for f in dataclasses.fields(cls):
        if "group" in f.metadata:
            lines += ["", f"# {f.metadata['help']}", f"{f.name}:"]
            lines += _documented(f.metadata["group"], f"{f.name}.", overrides)[1:]
        elif f.metadata:
            value = overrides.get(prefix + f.name, f.metadata["shown"])
            shown = yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
            lines += ["", f"{indent}# {f.metadata['help']}", f"{indent}{f.name}: {shown}"]
    return lines
