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
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from archec.errors import ArchecError, ConfigError
from archec.units import parse_duration, parse_share, parse_size

__all__ = [
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

DEFAULT_FILE = "config.yaml"
ENVIRONMENT = "ARCHEC_CONFIG"
DATABASE_ENVIRONMENT = "ARCHEC_DATABASE"
_USERINFO = re.compile(r"[^\s/]*:[^\s@]*@")
_NO_TEXT = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f\\ud800-\\udfff]")


# -- kinds: each turns what YAML gives into the field's type, or raises ValueError -----------------


def _text(value: object) -> str:
    if value is None:
        raise ValueError("must be text, not nothing")
    if not isinstance(value, str):
        raise ValueError("must be text")
    if _NO_TEXT.search(value):
        raise ValueError("must be text without control characters")
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


def _texts(value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be text or a list of texts")
    return tuple(items)


def _port(value: object) -> int:
    if _count(value) > 65535:
        raise ValueError("must be a port, 0 to 65535")
    return _count(value)


def _web(value: object) -> str:
    text = _text(value).rstrip("/")
    if text and not re.fullmatch(r"https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~%/-]*)?", text):
        raise ValueError("must be an http:// or https:// URL without a query, or empty")
    return text


def _database(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"sqlite:///.*[^/]|mongodb(\+srv)?://.+", text):
        raise ValueError("must be sqlite:///PATH, mongodb://HOST/DATABASE or mongodb+srv://HOST/DATABASE")
    return text


def _one_of(*allowed: str) -> Callable[[object], str]:
    def kind(value: object) -> str:
        if value not in allowed:
            raise ValueError(f"must be {' or '.join(allowed)}")
        return str(value)

    return kind


def _some_of(*allowed: str) -> Callable[[object], tuple[str, ...]]:
    def kind(value: object) -> tuple[str, ...]:
        items = _texts(value)
        if not set(items) <= set(allowed):
            raise ValueError(f"must be a list of some of {', '.join(allowed)}")
        return items

    return kind


def _domain(value: object) -> str:
    text = _text(value)
    if text and not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]*(\.[a-zA-Z][a-zA-Z0-9-]*)+", text):
        raise ValueError("must be a domain name with a dot, such as archive.example.org")
    return text


def _emails(value: object) -> tuple[str, ...]:
    items = _texts(value)
    if not all(re.fullmatch(r"[^\s@<>&]+@([^\s@.<>&]+\.)+[^\s@.<>&]+", item) for item in items):
        raise ValueError("must be a list of mail addresses")
    return items


def _stamp(value: object) -> str:
    text = _text(value)
    if text and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", text):
        raise ValueError("must be a time like '2009-05-01T00:00:00Z' in quotation marks, or empty")
    return text


class FormatConfig(NamedTuple):
    """A metadata format: its prefix, the entry point of its class, its schema and namespace; the last
    two are empty for archec's own."""

    metadataFormat: str  # noqa: N815 - the keys have these names since the thesis
    metadataFormatClass: str  # noqa: N815
    metadataFormatSchema: str = ""  # noqa: N815
    metadataFormatNamespace: str = ""  # noqa: N815


def _formats(value: object) -> tuple[FormatConfig, ...]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list of names, or of groups with {', '.join(FormatConfig._fields)}")
    found = []
    for item in value:
        if isinstance(item, str):
            found.append(FormatConfig(item, item))
        elif isinstance(item, dict) and set(item) == set(FormatConfig._fields):
            found.append(FormatConfig(**{key: _text(one) for key, one in item.items()}))
        else:
            raise ValueError(f"{item!r} is neither a name nor a group with {', '.join(FormatConfig._fields)}")
        if not re.fullmatch(r"[A-Za-z0-9_.!~*'()-]+", found[-1].metadataFormat):
            raise ValueError(f"{found[-1].metadataFormat!r} cannot be a metadataPrefix")
    return tuple(found)


class Collection(NamedTuple):
    """A collection of the operator's: what is in any of these archives (``aaa``), series
    (``aaa:ssssss``), hosts (domains, with all below them) or was noted in these runs (software tists)."""

    name: str
    title: str = ""
    archives: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    runs: tuple[int, ...] = ()


def _collections(value: object) -> tuple[Collection, ...]:
    if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
        raise ValueError("must be groups: NAME: {title: ..., archives: [aaa], series: [aaa:ssssss], ...}")
    found = []
    for name, group in value.items():
        if not name or not isinstance(name, str):
            raise ValueError(f"{name!r} cannot be the name of a collection")
        unknown = set(group) - set(Collection._fields[1:])
        if unknown:
            raise ValueError(f"{name}: unknown key {sorted(map(str, unknown))[0]}")
        runs = group.get("runs", [])
        parts = {key: tuple(t.lower() for t in _texts(group.get(key, []))) for key in ("archives", "series", "hosts")}
        parts["series"] = tuple(one.removeprefix("repec:") for one in parts["series"])
        if not isinstance(runs, list):
            raise ValueError(f"{name}: runs must be a list of software tists")
        found.append(Collection(name, _text(group.get("title", "")), **parts, runs=tuple(map(_count, runs))))
    return tuple(found)


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
class OaiConfig:
    """The OAI-PMH data provider. Most names are those of the protocol."""

    repositoryName: str = _s("", _text, "Name of the repository; empty: that of the archive.")  # noqa: N815
    repositoryIdentifier: str = _s(  # noqa: N815
        "", _domain, "The domain in all identifiers, oai:DOMAIN:...; empty: the host of server.url. Never change it."
    )
    baseURL: str = _s("", _web, "The address told to harvesters; empty: server.url, else as asked, with /oai.")  # noqa: N815
    adminEmail: tuple[str, ...] = _s(  # noqa: N815
        (), _emails, "Mail addresses of the administrators; none: fetch.contact, if it is one.", []
    )
    earliestDatestamp: str = _s("", _stamp, "Lower bound of all datestamps; empty: computed.")  # noqa: N815
    deletedRecord: str = _s(  # noqa: N815
        "persistent", _one_of("persistent", "transient"), "persistent: losses are told for ever; or transient."
    )
    items: str = _s("both", _one_of("both", "tobi", "fobi"), "What is served: tobi (templates), fobi (files), both.")
    sets: tuple[str, ...] = _s(
        ("archive", "RePEc", "type", "dom", "mim", "col"),
        _some_of("archive", "RePEc", "type", "dom", "mim", "col"),
        "The trees of sets; none: the repository has no sets.",
        ["archive", "RePEc", "type", "dom", "mim", "col"],
    )
    collections: tuple[Collection, ...] = _s(
        (), _collections, "Sets col:NAME, e.g. {north: {title: The North, archives: [aaa], hosts: [nber.org]}}.", {}
    )
    metadataFormats: tuple[FormatConfig, ...] = _s(  # noqa: N815
        tuple(FormatConfig(name, name) for name in ("oai_dc", "redif", "amf")),
        _formats,
        "Names of archec's formats; for others groups with metadataFormat (prefix), metadataFormatClass (entry point), "
        "metadataFormatSchema, metadataFormatNamespace.",
        ["oai_dc", "redif", "amf"],
    )
    numOfRecords: int = _s(100, _positive, "Records, headers or sets on a page.")  # noqa: N815
    liveTime: float = _s(86400.0, _duration, "How long a resumption token is good for.", "24h")  # noqa: N815
    max_page: int = _s(4_000_000, _size, "A page ends early when its records are larger than this.", "4MB")
    max_lists: int = _s(16, _positive, "List requests in work at once; over it 503 with Retry-After.")
    retry_after: float = _s(10.0, _duration, "The Retry-After of such an answer.", "10s")
    provenance: str = _s(
        "http://repec.org/", _text, "Where the templates come from, in each record's provenance; empty: none."
    )
    description: tuple[str, ...] = _s(
        (), _texts, "More description containers of Identify: XML, or the path of a file with it.", []
    )
    friends: tuple[str, ...] = _s((), _texts, "Base URLs of befriended repositories.", [])
    content: str = _s("", _text, "eprints description: what the repository holds; text or URL.")
    metadataPolicy: str = _s("", _text, "eprints description: how metadata may be used; text or URL.")  # noqa: N815
    dataPolicy: str = _s("", _text, "eprints description: how files may be used; text or URL.")  # noqa: N815
    submissionPolicy: str = _s("", _text, "eprints description: how things get here; text or URL.")  # noqa: N815
    rights: str = _s("", _web, "URL of the rights statement for all metadata; empty: none.")
    index: str = _s("data/oai.sqlite", _text, "The index of an SQLite catalogue; made anew where it is missing.")
    secret: str = _s(
        "data/oai.secret", _text, "File with the secret that signs tokens, made on first use; or ARCHEC_OAI_SECRET."
    )


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP server that ``archec serve`` starts."""

    host: str = _s("127.0.0.1", _text, "Address to listen on; 0.0.0.0 or '::' for all.")
    port: int = _s(8080, _port, "Port to listen on; 0: any that is free.")
    url: str = _s("", _web, "Public address of the server, without a path of a capability; empty: as asked.")
    max_connections: int = _s(10_000, _positive, "Connections at once; over it 503.")
    max_body: int = _s(64_000, _size, "Largest body of a request.", "64kB")
    idle_timeout: float = _s(30.0, _duration, "A connection without a whole request for this long is closed.", "30s")
    send_timeout: float = _s(60.0, _duration, "One whose client takes in nothing for this long is closed.", "60s")
    stop_timeout: float = _s(30.0, _duration, "How long requests in work may go on when the server stops.", "30s")
    access_log: str = _s("-", _text, "Access log: a file, '-' for stdout, or empty for none.")


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. Relative paths are relative to the folder of the file."""

    base: Path = field(default=Path())
    """The folder of the configuration file; not a setting."""
    file: Path = field(default=Path(DEFAULT_FILE), compare=False)
    """The configuration file, for messages; not a setting."""

    name: str = _s("archec", _text, "Name of this archive, in reports and the User-Agent.")
    object_store: str = _s("archive", _text, "The obi store.")
    ReDIF_directory: str = _s("data/current", _text, "The current RePEc data set.")
    tarballs: str = _s("data/tarballs", _text, "Where old data sets lie, by date.")
    work_directory: str = _s("data/work", _text, "Scratch space of a run: about the size of the data set.")
    database: str = _s(
        "sqlite:///data/catalogue.sqlite", _database,
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
    server: ServerConfig = _group(ServerConfig, "The HTTP server, 'archec serve'.")  # noqa: RUF009
    oai: OaiConfig = _group(OaiConfig, "The OAI-PMH data provider, at /oai of the server.")  # noqa: RUF009

    def path(self, value: str) -> Path:
        """A path setting, made absolute and without ``..``."""
        return plain_path(self.base / value)

    def place(self, key: str) -> str:
        """What a message about the setting ``key`` begins with: its file and its name."""
        return f"{self.file}: {key}"

    def is_default(self, key: str) -> bool:
        """Whether the setting ``key`` (one that is in no group) has the value that it has where nobody sets it."""
        return bool(getattr(self, key) == next(f.default for f in dataclasses.fields(self) if f.name == key))

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


def plain_path(path: Path) -> Path:
    """A path made absolute and without ``..``, as the file system follows these; links behind the last stay."""
    path = path.absolute()
    parts = path.parts
    if ".." not in parts:
        return path
    cut = len(parts) - parts[::-1].index("..")
    return Path(os.path.realpath(Path(*parts[:cut])), *parts[cut:])


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
        return dataclasses.replace(config, database=_database(database))
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


def _names(cls: type[Any] = Config, prefix: str = "") -> list[str]:
    names: list[str] = []
    for f in dataclasses.fields(cls):
        if "group" in f.metadata:
            names += [f.name, *_names(f.metadata["group"], f"{f.name}.")]
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
    import yaml

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
