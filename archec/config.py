"""The configuration: one table of settings, validated whole, frozen.

Each setting stands once, as a field below with its kind, default and help. The shipped
``config.yaml`` and what ``archec init`` writes are made from these fields (:func:`as_yaml`), and
:func:`load` refuses unknown keys with the nearest right one.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from archec.errors import ArchecError, ConfigError
from archec.units import parse_duration, parse_share, parse_size

__all__ = ["Config", "FetchConfig", "TextConfig", "as_yaml", "load", "parse"]

DEFAULT_FILE = "config.yaml"
ENVIRONMENT = "ARCHEC_CONFIG"
DATABASE_ENVIRONMENT = "ARCHEC_DATABASE"


# -- kinds: each turns what YAML gives into the field's type, or raises ValueError -----------------


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("must be a whole number, 0 or more")
    return value


def _positive(value: object) -> int:
    if _count(value) == 0:
        raise ValueError("must be a whole number, 1 or more")
    return _count(value)


def _size(value: object) -> int:
    return parse_size(value if isinstance(value, int) else _text(value))


def _duration(value: object) -> float:
    return parse_duration(value if isinstance(value, (int, float)) else _text(value))


def _share(value: object) -> float:
    return parse_share(value if isinstance(value, (int, float)) else _text(value))


def _networks(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of networks such as [10.1.0.0/16]")
    try:
        return tuple(str(ipaddress.ip_network(_text(item), strict=False)) for item in value)
    except ValueError as error:
        raise ValueError(f"must be a list of networks such as [10.1.0.0/16]: {error}") from error


def _proxy(value: object) -> str:
    text = _text(value)
    if text and not text.startswith(("http://", "https://")):
        raise ValueError("must be an http:// or https:// URL, or empty")
    return text


def _robots(value: object) -> str:
    if value not in ("obey", "ignore"):
        raise ValueError("must be 'obey' or 'ignore'")
    return str(value)


def _s(default: Any, kind: Callable[[object], Any], doc: str, yaml_default: object = None) -> Any:
    shown = default if yaml_default is None else yaml_default
    return field(default=default, metadata={"kind": kind, "help": doc, "shown": shown})


def _group(factory: type[Any], doc: str) -> Any:
    return field(default_factory=factory, metadata={"group": factory, "help": doc})


# -- the settings ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """How files are fetched (design, section 5)."""

    contact: str = _s(
        "", _text, "Mail address or web page of the archive's operator; part of the User-Agent."
    )
    user_agent: str = _s(
        "", _text, "The whole User-Agent; empty: made of archec, its version, name and contact."
    )
    workers: int = _s(2, _positive, "Worker processes; each owns its share of the hosts.")
    concurrency: int = _s(64, _positive, "Requests in flight over all hosts.")
    per_host: int = _s(2, _positive, "Requests in flight to one host.")
    delay: float = _s(
        0.25, _duration, "Least time between two requests to one host.", "250ms"
    )
    max_delay: float = _s(
        300.0, _duration, "A Retry-After or Crawl-delay beyond this: the host's rest waits for the next run.", "5m"
    )
    robots: str = _s("obey", _robots, "obey or ignore robots.txt.")
    connect_timeout: float = _s(20.0, _duration, "Time to resolve, connect and agree on TLS.", "20s")
    idle_timeout: float = _s(30.0, _duration, "Longest silence of a server.", "30s")
    total_timeout: float = _s(600.0, _duration, "Longest time for one file.", "10m")
    min_rate: int = _s(
        500, _size, "Bytes per second that a server must keep to, on average after the first half minute."
    )
    max_size: int = _s(500_000_000, _size, "Largest file, as sent and as decoded.", "500MB")
    max_redirects: int = _s(10, _count, "Longest chain of redirects.")
    retries: int = _s(2, _count, "Tries again within a run after a fault that may pass.")
    host_failures: int = _s(
        5, _positive, "Faults in a row after which the rest of a host waits for the next run."
    )
    proxy: str = _s(
        "", _proxy, "HTTP proxy for all requests; empty: HTTP_PROXY, HTTPS_PROXY, NO_PROXY."
    )
    allow_networks: tuple[str, ...] = _s(
        (), _networks, "Private networks that may be fetched from, e.g. [10.1.0.0/16]; none by default.", []
    )
    revisit_min: float = _s(
        7 * 86400.0, _duration, "Known files are visited again after this time at the soonest ...", "7d"
    )
    revisit_max: float = _s(365 * 86400.0, _duration, "... and after this time at the latest.", "365d")


@dataclass(frozen=True, slots=True)
class TextConfig:
    """How text is taken out of fetched files, for the text checksums (vo)."""

    enabled: bool = _s(True, _flag, "Take text out of PDF, HTML, PostScript and plain files.")
    workers: int = _s(1, _positive, "Worker processes.")
    timeout: float = _s(30.0, _duration, "Longest time for one file.", "30s")
    max_memory: int = _s(1_000_000_000, _size, "Most memory of one worker.", "1GB")
    max_size: int = _s(100_000_000, _size, "Larger files are not read for text.", "100MB")


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. Relative paths are relative to the folder of the file."""

    base: Path = field(default=Path())
    """The folder of the configuration file; not a setting."""

    name: str = _s("archec", _text, "Name of this archive, in reports and the User-Agent.")
    object_store: str = _s("archive", _text, "The obi store.")
    ReDIF_directory: str = _s("data/current", _text, "The current RePEc data set.")
    tarballs: str = _s("data/tarballs", _text, "Where old data sets lie, by date.")
    work_directory: str = _s("data/work", _text, "Scratch space of a run: about the size of the data set.")
    database: str = _s(
        "sqlite:///data/catalogue.sqlite", _text,
        "The catalogue: sqlite:///PATH or mongodb://HOST/DATABASE (ARCHEC_DATABASE overrides).",
    )
    workers: int = _s(0, _count, "Processes that read and write templates; 0: one for each core, at most 4.")
    max_template_file: int = _s(1_000_000_000, _size, "Larger files of a data set are not read.", "1GB")
    max_loss: float = _s(
        0.05, _share, "Losses of an archive's templates beyond this share in one run are held back ...", "5%"
    )
    max_loss_least: int = _s(20, _count, "... if they are at least so many.")
    lost_confirmations: int = _s(2, _positive, "Visits that find a file gone before it counts as lost.")
    lost_grace: float = _s(7 * 86400.0, _duration, "Least time between the first and the last of them.", "7d")
    store_cosmetic: bool = _s(False, _flag, "Also store files whose bytes changed and whose text did not.")
    max_files: int = _s(0, _count, "Files to fetch in a run at most; 0: no limit.")
    max_bytes: int = _s(0, _size, "Bytes to fetch in a run at most; 0: no limit.")
    max_time: float = _s(0.0, _duration, "Time to fetch in a run at most; 0: no limit.", 0)
    min_free: float = _s(0.01, _share, "A run stops cleanly when less than this share of the disk is left.", "1%")
    fetch: FetchConfig = _group(FetchConfig, "Fetching files.")  # noqa: RUF009
    text: TextConfig = _group(TextConfig, "Taking text out of files.")  # noqa: RUF009

    def path(self, value: str) -> Path:
        """A path setting, made absolute."""
        return (self.base / value).absolute()

    @property
    def store_path(self) -> Path:
        return self.path(self.object_store)

    @property
    def data_path(self) -> Path:
        return self.path(self.ReDIF_directory)

    @property
    def work_path(self) -> Path:
        return self.path(self.work_directory)

    @property
    def agent(self) -> str:
        """The User-Agent: names the archive and a contact address."""
        if self.fetch.user_agent:
            return self.fetch.user_agent
        from archec import __version__

        about = "; ".join(filter(None, (self.name, self.fetch.contact)))
        return f"archec/{__version__} ({about})"


# -- reading --------------------------------------------------------------------------------------


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
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    config = parse(text, path)
    database = environ.get(DATABASE_ENVIRONMENT)
    return dataclasses.replace(config, database=database) if database else config


def parse(text: str, path: Path) -> Config:
    """The configuration from YAML text; ``path`` is for messages and as the base of paths."""
    try:
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    values = _values(Config, {} if data is None else data, path, "")
    return Config(base=path.absolute().parent, **values)


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
            shown = str(value) if not isinstance(value, str) else repr(value)
            raise ConfigError(f"{path}: {prefix}{key}: {shown}: {error}") from error
    return values


def _names(cls: type[Any] = Config, prefix: str = "") -> list[str]:
    names: list[str] = []
    for f in dataclasses.fields(cls):
        if "group" in f.metadata:
            names += _names(f.metadata["group"], f"{f.name}.")
        elif f.metadata:
            names.append(prefix + f.name)
    return names


def _nearest(key: str, prefix: str) -> str:
    names = _names()
    close = difflib.get_close_matches((prefix + key).lower(), [n.lower() for n in names], 1, 0.5)
    if not close:
        close = difflib.get_close_matches(key.lower(), [n.lower().rpartition(".")[2] for n in names], 1, 0.5)
        full = [n for n in names if close and n.lower().rpartition(".")[2] == close[0]]
    else:
        full = [n for n in names if n.lower() == close[0]]
    return f"did you mean {full[0]}?" if full else "config.yaml documents every setting"


# -- writing --------------------------------------------------------------------------------------


def as_yaml(overrides: Mapping[str, object] | None = None) -> str:
    """A documented ``config.yaml`` with every setting at its default, or at ``overrides[name]``."""
    lines = [
        "# archec configuration. Every setting is here, with its default; a line may be left out.",
        "# Relative paths are relative to the folder of this file. Sizes: 500kB, 20MB, 2GiB.",
        "# Durations: 90s, 15m, 2h30m, 7d. Secrets do not belong here: use the environment.",
    ]
    lines += _yaml_lines(Config, "", dict(overrides or {}))
    return "\n".join(lines) + "\n"


def _yaml_lines(cls: type[Any], prefix: str, overrides: dict[str, object]) -> list[str]:
    lines: list[str] = []
    indent = "  " if prefix else ""
    for f in dataclasses.fields(cls):
        if "group" in f.metadata:
            lines += ["", f"# {f.metadata['help']}", f"{f.name}:"]
            lines += _yaml_lines(f.metadata["group"], f"{f.name}.", overrides)[1:]
        elif f.metadata:
            value = overrides.get(prefix + f.name, f.metadata["shown"])
            shown = yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
            lines += ["", f"{indent}# {f.metadata['help']}", f"{indent}{f.name}: {shown}"]
    return lines
