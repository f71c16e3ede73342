"""The model: every setting with its type, default and help text, and values derived from the settings."""

# ruff: noqa: N815, RUF009 - setting() creates a field; the names of oai are those of the protocol

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archec.config import types as t
from archec.config.types import FormatConfig
from archec.units import parse_duration, parse_size

DEFAULT_FILE = "config.yaml"


def setting(default: Any, help: str, shown: object = None) -> Any:  # noqa: A002
    """A setting. ``shown`` is its default as written in ``config.yaml``, if that is different."""
    if shown is None:
        shown = list(default) if isinstance(default, tuple) else default
    return field(default=default, metadata={"help": help, "shown": shown})


def duration(default: str, help: str) -> Any:  # noqa: A002
    """A setting whose default is a duration as people write it."""
    return setting(parse_duration(default), help, default)


def size(default: str, help: str) -> Any:  # noqa: A002
    """A setting whose default is a size as people write it."""
    return setting(parse_size(default), help, default)


def group(cls: type[Any], help: str) -> Any:  # noqa: A002
    """A group of settings: the settings of the dataclass ``cls``."""
    return field(default_factory=cls, metadata={"help": help, "group": cls})


def setting_names(cls: type[Any] | None = None, prefix: str = "") -> list[str]:
    """The names of all groups and settings; those in groups have the form ``group.name``."""
    found: list[str] = []
    for f in dataclasses.fields(cls or Config):
        if "group" in f.metadata:
            found += [f.name, *setting_names(f.metadata["group"], f"{f.name}.")]
        elif f.metadata:
            found.append(prefix + f.name)
    return found


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Fetching of files."""

    contact: t.Text = setting("", "Email address or web page of the archive's operator; part of the User-Agent.")
    user_agent: t.Text = setting("", "The complete User-Agent; empty: archec, its version, name and contact.")
    workers: t.Positive = setting(1, "Number of worker processes, which share the hosts; one is usually best.")
    max_memory: t.Size = size("1GB", "Maximum memory of one worker.")
    concurrency: t.Positive = setting(64, "Maximum number of requests in flight.")
    per_host: t.Positive = setting(2, "Maximum number of requests in flight to one host.")
    per_address: t.Positive = setting(
        4, "Maximum number of requests of a worker in flight to one address, over all its names."
    )
    delay: t.Duration = duration("250ms", "Minimum time between two requests to one host.")
    max_delay: t.Duration = duration(
        "5m", "A host whose Retry-After or Crawl-delay is longer than this is deferred to the next run."
    )
    robots: t.Robots = setting("obey", "obey or ignore robots.txt.")
    robots_tags: t.RobotsTags = setting(
        "record", "record or obey 'noarchive' in X-Robots-Tag and robots meta elements; obey: such files are not kept."
    )
    deny: t.Denials = setting(
        (),
        "What is never fetched, e.g. [{hosts: [example.org], reason: requested}]; also urls: ['*/private/*'] and "
        "networks: [192.0.2.0/24].",
    )
    connect_timeout: t.Duration = duration("20s", "Maximum time to resolve a name, connect and negotiate TLS.")
    idle_timeout: t.Duration = duration("30s", "Maximum time without a byte from the server.")
    total_timeout: t.Duration = duration("10m", "Maximum time for one file.")
    min_rate: t.Size = setting(500, "Minimum average rate in bytes per second, after the first half minute.")
    max_size: t.Size = size("500MB", "Maximum size of a file, as sent and as decoded.")
    max_redirects: t.Count = setting(10, "Maximum number of redirects in a row.")
    retries: t.Count = setting(2, "Number of retries within a run after a temporary failure.")
    host_failures: t.Positive = setting(5, "After this many failures in a row, a host is deferred to the next run.")
    proxy: t.Proxy = setting("", "HTTP proxy for all requests; empty: HTTP_PROXY, HTTPS_PROXY, NO_PROXY.")
    allow_networks: t.Networks = setting(
        (), "Private networks that may be fetched from, e.g. [10.1.0.0/16]; none by default."
    )
    old_tls: t.Flag = setting(True, "Use TLS 1.0, 1.1 and legacy renegotiation if a server supports nothing better.")
    insecure_hosts: t.Hosts = setting((), "Hosts whose certificates are not verified, e.g. [papers.example.org].")
    revisit_min: t.Duration = duration("7d", "Minimum time until a known file is visited again ...")
    revisit_max: t.Duration = duration("365d", "... and maximum time.")
    reverify: t.Duration = duration(
        "365d", "A file that the server reports as not modified is downloaded again after this time."
    )


@dataclass(frozen=True, slots=True)
class TextConfig:
    """Extraction of text from fetched files, for the text checksums (vo)."""

    enabled: t.Flag = setting(True, "Extract text from PDF, HTML, PostScript and plain files.")
    workers: t.Positive = setting(1, "Worker processes.")
    timeout: t.Duration = duration("30s", "Maximum time for one file.")
    max_memory: t.Size = size("1GB", "Maximum memory of one worker.")
    max_size: t.Size = size("100MB", "Maximum size of a file from which text is extracted.")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP server that ``archec serve`` starts."""

    host: t.Text = setting("127.0.0.1", "Address to listen on; 0.0.0.0 or '::' for all.")
    port: t.Port = setting(8080, "Port to listen on; 0: any free port.")
    url: t.Web = setting("", "Public address of the server, without a capability's path; empty: as requested.")
    max_connections: t.Positive = setting(10_000, "Maximum number of connections; beyond it 503.")
    max_body: t.Size = size("64kB", "Maximum size of a request's body.")
    idle_timeout: t.Duration = duration("30s", "Maximum time for a request's body to arrive.")
    trusted_proxies: t.Networks = setting(
        (), "Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted, e.g. [127.0.0.1/32]."
    )
    send_timeout: t.Duration = duration("60s", "Connections whose clients read nothing for this long are closed.")
    stop_timeout: t.Duration = duration("10s", "How long requests may take to finish when the server stops.")
    access_log: t.Text = setting("-", "Access log: a file, '-' for stdout, or empty for none.")


@dataclass(frozen=True, slots=True)
class OaiConfig:
    """The OAI-PMH data provider. Most names are those of the protocol."""

    repositoryName: t.Text = setting("", "Name of the repository; empty: that of the archive.")
    repositoryIdentifier: t.Domain = setting(
        "", "The domain in all identifiers, oai:DOMAIN:...; empty: the host of server.url. Never change it."
    )
    baseURL: t.Web = setting("", "Address given to harvesters; empty: server.url, or as requested, with /oai.")
    adminEmail: t.Emails = setting((), "Administrators' email addresses; none: fetch.contact, if it is one.")
    earliestDatestamp: t.Stamp = setting("", "Lower bound of all datestamps; empty: computed.")
    deletedRecord: t.Deleted = setting("persistent", "persistent: losses are reported permanently; or transient.")
    items: t.Items = setting("both", "Items that are served: tobi (templates), fobi (files), both.")
    sets: t.Trees = setting(
        ("archive", "RePEc", "type", "dom", "mim", "col"), "The trees of sets; none: the repository has no sets."
    )
    collections: t.Collections = setting(
        (), "Sets col:NAME, e.g. {north: {title: The North, archives: [aaa], hosts: [nber.org]}}.", {}
    )
    metadataFormats: t.Formats = setting(
        tuple(FormatConfig(name, name) for name in ("oai_dc", "redif", "amf")),
        "Names of archec's formats; for others groups with metadataFormat (prefix), metadataFormatClass (entry point), "
        "metadataFormatSchema, metadataFormatNamespace.",
        ["oai_dc", "redif", "amf"],
    )
    numOfRecords: t.Positive = setting(100, "Records, headers or sets on a page.")
    liveTime: t.Duration = duration("24h", "How long a resumption token is valid.")
    max_page: t.Size = size("4MB", "Maximum size of the records on a page; a page ends early to keep to it.")
    max_lists: t.Positive = setting(16, "Maximum number of concurrent list requests; beyond it 503 with Retry-After.")
    retry_after: t.Duration = duration("10s", "The Retry-After of that response.")
    provenance: t.Text = setting(
        "http://repec.org/", "Where the templates come from, in each record's provenance; empty: none."
    )
    description: t.Texts = setting((), "More description containers of Identify: XML, or the path of such a file.")
    friends: t.Texts = setting((), "Base URLs of related repositories.")
    content: t.Text = setting("", "eprints description: what the repository holds; text or URL.")
    metadataPolicy: t.Text = setting("", "eprints description: how metadata may be used; text or URL.")
    dataPolicy: t.Text = setting("", "eprints description: how files may be used; text or URL.")
    submissionPolicy: t.Text = setting("", "eprints description: how items are submitted; text or URL.")
    rights: t.Web = setting("", "URL of the rights statement for all metadata; empty: none.")
    index: t.Text = setting("data/oai.sqlite", "The index of an SQLite catalogue; rebuilt if it is missing.")
    secret: t.Text = setting(
        "data/oai.secret", "File with the secret that signs tokens, created on first use; or ARCHEC_OAI_SECRET."
    )


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """Access control for the collections."""

    open: t.Open = setting("none", "What is visible without a token: none, metadata or content.")
    default: t.Text = setting("", "The collection behind /web, /wayback and /cdx/search/cdx; empty: the first one.")
    tokens: t.Text = setting("data/access.tokens", "File with the hashed tokens, written by 'archec access token'.")
    audit: t.Text = setting("", "Audit log: a file with one line of JSON per request for a collection; empty: none.")
    cors: t.Origins = setting((), "Origins of web pages that may use the API, or '*'.")
    rules: t.Rules = setting(
        (),
        "Rules that say what is open, metadata, closed or withdrawn: [{archive: aaa, rights: open}]; the first match "
        "counts. They are for collections only: /oai gives templates to everybody.",
    )
    rate: t.Count = setting(0, "Maximum number of requests per minute with one token; beyond it 429; 0: no limit.")
    max_body: t.Size = size("1GB", "Maximum size of the body of a POST to a collection.")
    live: t.Switch = setting(False, "Whether the live web may be an index; clients then choose the host.", "off")
    live_methods: t.Methods = setting(("GET", "HEAD", "POST"), "HTTP methods that are allowed on the live web.")
    cache: t.Pause = setting(0.0, "How long answers of remote indexes are cached, e.g. 5m; off: not at all.", "off")


@dataclass(frozen=True, slots=True)
class SealConfig:
    """Seals, which later prove that nothing was altered."""

    origin: t.Text = setting("", "The name of this archive in its seals, e.g. archive.example.org; empty: name.")
    key: t.Text = setting(
        "", "File with the key that signs seals, created by 'archec seal --new-key'; empty: unsigned."
    )
    keys: t.Texts = setting(
        (), "Verifier keys that are trusted in addition to that of seal.key: older ones, witnesses."
    )


@dataclass(frozen=True, slots=True)
class FilesetConfig:
    """Data sets behind landing pages."""

    gather: t.Switch = setting(False, "Whether 'archec gather' also ingests data sets that are due.", "off")
    resolver: t.Web = setting("https://doi.org", "Resolver of DOIs and handles; its /api/handles is used.")
    web_max_files: t.Count = setting(20, "A data set with more files is uploaded to archive.org ...")
    web_max_total: t.Size = size("1GiB", "... and so is one with a larger total size ...")
    web_max_file: t.Size = size("128MiB", "... or one with a larger file.")
    max_file_count: t.Positive = setting(200, "Maximum number of files of a data set; at most 100000.")
    max_total_size: t.Size = size("64GiB", "Maximum size of a data set.")
    archiveorg_s3: t.Web = setting(
        "https://s3.us.archive.org",
        "S3 API for uploads to archive.org, if ARCHEC_ARCHIVEORG_ACCESS_KEY and ARCHEC_ARCHIVEORG_SECRET_KEY "
        "are set; else only the obi store keeps these data sets.",
    )
    archiveorg_url: t.Web = setting("https://archive.org", "Site whose /metadata is used to verify uploads.")
    archiveorg_collection: t.Text = setting("", "The collection of new items; empty: archive.org chooses.")
    platforms: t.Platforms = setting(
        (), "Overrides by platform, e.g. {dspace: {hosts: [econ.example.org]}, zenodo: {token: ZENODO_TOKEN}}.", {}
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. Relative paths are relative to the directory of the file."""

    base: Path = field(default=Path())
    """The directory of the configuration file; not a setting."""
    file: Path = field(default=Path(DEFAULT_FILE), compare=False)
    """The configuration file, for messages; not a setting."""

    name: t.Text = setting("archec", "Name of this archive, in reports and the User-Agent.")
    object_store: t.FilePath = setting("archive", "The obi store.")
    ReDIF_directory: t.FilePath = setting("data/current", "The current RePEc data set.")
    tarballs: t.FilePath = setting("data/tarballs", "Directory of old data sets, by date.")
    work_directory: t.FilePath = setting("data/work", "Scratch space of a run; needs about the size of the data set.")
    database: t.Database = setting(
        "sqlite:///data/catalogue.sqlite",
        "The catalogue: sqlite:///PATH or mongodb://HOST/DATABASE (ARCHEC_DATABASE overrides).",
    )
    workers: t.Count = setting(0, "Processes that read and write templates; 0: one per core, at most 4.")
    reread_after: t.Duration = duration(
        "30d", "All files of ReDIF_directory, not only changed ones, are read again after this time."
    )
    template_files: t.Texts = setting(
        (), "Template files besides *.rdf and *.redif: case-insensitive patterns, e.g. ['*.txt', 'aaa/*']."
    )
    max_template_file: t.Size = size("1GB", "Maximum size of a file of a data set; larger ones are not read.")
    max_loss: t.Share = setting(
        0.05, "If a run would lose a larger share of an archive's templates, the losses are held back ...", "5%"
    )
    max_loss_least: t.Count = setting(
        20, "... if there are at least this many, or if they are more than half of at least 3."
    )
    lost_confirmations: t.Positive = setting(2, "Number of visits that must find a file gone before it counts as lost.")
    lost_grace: t.Duration = duration("7d", "Minimum time between the first and the last of these visits.")
    store_cosmetic: t.Flag = setting(False, "Also store files whose bytes changed but whose text did not.")
    max_files: t.Count = setting(0, "Maximum number of files to fetch in a run; 0: no limit.")
    max_bytes: t.Size = setting(0, "Maximum number of bytes to receive in a run, headers included; 0: no limit.")
    max_time: t.Duration = setting(0.0, "Maximum time to fetch in a run; 0: no limit.", 0)
    min_free: t.Share = setting(
        0.01, "A run stops cleanly when less than this share of the disk or its inodes is free.", "1%"
    )
    fetch: FetchConfig = group(FetchConfig, "Fetching files.")
    text: TextConfig = group(TextConfig, "Extracting text from files.")
    server: ServerConfig = group(ServerConfig, "The HTTP server, 'archec serve'.")
    oai: OaiConfig = group(OaiConfig, "The OAI-PMH data provider, at /oai of the server.")
    access: AccessConfig = group(AccessConfig, "Access control for the collections.")
    fileset: FilesetConfig = group(FilesetConfig, "Data sets behind landing pages, 'archec fileset'.")
    seal: SealConfig = group(SealConfig, "Seals of the archive, 'archec seal'.")
    collections: t.AccessCollections = setting(
        (),
        "Collections served besides OAI-PMH, e.g. {mine: $archive, other: memento+http://archive.example.org/web/}.",
        {},
    )

    def path(self, value: str) -> Path:
        """A path setting as an absolute path without ``..``."""
        return plain_path(self.base / value)

    def place(self, key: str) -> str:
        """The beginning of a message about the setting ``key``: the file and the name of the setting."""
        return f"{self.file}: {key}"

    @property
    def store_path(self) -> Path:
        return self.path(self.object_store)

    @property
    def data_path(self) -> Path:
        return self.path(self.ReDIF_directory)

    @property
    def work_path(self) -> Path:
        return self.path(self.work_directory)

    def memory(self, name: str) -> Path:
        """The path of a file that is kept from run to run but may be lost. It is next to the scratch space, with its
        name as a prefix; or inside, if the scratch space is the folder of the archive or above it."""
        work = self.work_path
        if self.base.is_relative_to(work):
            return work / f"work.{name}"
        return work.parent / f"{work.name}.{name}"

    @property
    def processes(self) -> int:
        """The number of worker processes: the setting, or one per core and at most four."""
        return self.workers or min(4, os.cpu_count() or 1)

    @property
    def agent(self) -> str:
        """The User-Agent in one line, with the name of the archive and a contact address."""
        from archec import __version__

        about = "; ".join(filter(None, (self.name, self.fetch.contact)))
        return " ".join((self.fetch.user_agent or f"archec/{__version__} ({about})").split())


def plain_path(path: Path) -> Path:
    """An absolute path without ``..``, resolved as the file system does; links after the last ``..`` stay."""
    path = path.absolute()
    parts = path.parts
    if ".." not in parts:
        return path
    cut = len(parts) - parts[::-1].index("..")
    return Path(os.path.realpath(Path(*parts[:cut])), *parts[cut:])
