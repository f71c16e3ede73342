"""Sections: the groups of settings in the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from archec.config import kinds
from archec.config.kinds import Collection, FormatConfig
from archec.config.setting import setting

__all__ = ["FetchConfig", "OaiConfig", "ServerConfig", "TextConfig"]


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """How files are fetched (design, section 5)."""

    contact: str = setting(
        "", kinds.text, "Mail address or web page of the archive's operator; part of the User-Agent."
    )
    user_agent: str = setting(
        "", kinds.text, "The whole User-Agent; empty: made of archec, its version, name and contact."
    )
    workers: int = setting(2, kinds.positive, "Worker processes; each owns its share of the hosts.")
    concurrency: int = setting(64, kinds.positive, "Requests in flight over all hosts.")
    per_host: int = setting(2, kinds.positive, "Requests in flight to one host.")
    delay: float = setting(0.25, kinds.duration, "Least time between two requests to one host.", "250ms")
    max_delay: float = setting(
        300.0, kinds.duration, "A Retry-After or Crawl-delay beyond this: the host's rest waits for the next run.", "5m"
    )
    robots: str = setting("obey", kinds.robots, "obey or ignore robots.txt.")
    connect_timeout: float = setting(20.0, kinds.duration, "Time to resolve, connect and agree on TLS.", "20s")
    idle_timeout: float = setting(30.0, kinds.duration, "Longest silence of a server.", "30s")
    total_timeout: float = setting(600.0, kinds.duration, "Longest time for one file.", "10m")
    min_rate: int = setting(
        500, kinds.size, "Bytes per second that a server must keep to, on average after the first half minute."
    )
    max_size: int = setting(500_000_000, kinds.size, "Largest file, as sent and as decoded.", "500MB")
    max_redirects: int = setting(10, kinds.count, "Longest chain of redirects.")
    retries: int = setting(2, kinds.count, "Tries again within a run after a fault that may pass.")
    host_failures: int = setting(
        5, kinds.positive, "Faults in a row after which the rest of a host waits for the next run."
    )
    proxy: str = setting("", kinds.proxy, "HTTP proxy for all requests; empty: HTTP_PROXY, HTTPS_PROXY, NO_PROXY.")
    allow_networks: tuple[str, ...] = setting(
        (), kinds.networks, "Private networks that may be fetched from, e.g. [10.1.0.0/16]; none by default.", []
    )
    revisit_min: float = setting(
        7 * 86400.0, kinds.duration, "Known files are visited again after this time at the soonest ...", "7d"
    )
    revisit_max: float = setting(365 * 86400.0, kinds.duration, "... and after this time at the latest.", "365d")


@dataclass(frozen=True, slots=True)
class TextConfig:
    """How text is taken out of fetched files, for the text checksums (vo)."""

    enabled: bool = setting(True, kinds.flag, "Take text out of PDF, HTML, PostScript and plain files.")
    workers: int = setting(1, kinds.positive, "Worker processes.")
    timeout: float = setting(30.0, kinds.duration, "Longest time for one file.", "30s")
    max_memory: int = setting(1_000_000_000, kinds.size, "Most memory of one worker.", "1GB")
    max_size: int = setting(100_000_000, kinds.size, "Larger files are not read for text.", "100MB")


@dataclass(frozen=True, slots=True)
class OaiConfig:
    """The OAI-PMH data provider. Most names are those of the protocol."""

    repositoryName: str = setting("", kinds.text, "Name of the repository; empty: that of the archive.")  # noqa: N815
    repositoryIdentifier: str = setting(  # noqa: N815
        "",
        kinds.domain,
        "The domain in all identifiers, oai:DOMAIN:...; empty: the host of server.url. Never change it.",
    )
    baseURL: str = setting(  # noqa: N815
        "", kinds.web, "The address told to harvesters; empty: server.url, else as asked, with /oai."
    )
    adminEmail: tuple[str, ...] = setting(  # noqa: N815
        (), kinds.emails, "Mail addresses of the administrators; none: fetch.contact, if it is one.", []
    )
    earliestDatestamp: str = setting("", kinds.stamp, "Lower bound of all datestamps; empty: computed.")  # noqa: N815
    deletedRecord: str = setting(  # noqa: N815
        "persistent", kinds.one_of("persistent", "transient"), "persistent: losses are told for ever; or transient."
    )
    items: str = setting(
        "both", kinds.one_of("both", "tobi", "fobi"), "What is served: tobi (templates), fobi (files), both."
    )
    sets: tuple[str, ...] = setting(
        ("archive", "RePEc", "type", "dom", "mim", "col"),
        kinds.some_of("archive", "RePEc", "type", "dom", "mim", "col"),
        "The trees of sets; none: the repository has no sets.",
        ["archive", "RePEc", "type", "dom", "mim", "col"],
    )
    collections: tuple[Collection, ...] = setting(
        (),
        kinds.collections,
        "Sets col:NAME, e.g. {north: {title: The North, archives: [aaa], hosts: [nber.org]}}.",
        {},
    )
    metadataFormats: tuple[FormatConfig, ...] = setting(  # noqa: N815
        tuple(FormatConfig(name, name) for name in ("oai_dc", "redif", "amf")),
        kinds.formats,
        "Names of archec's formats; for others groups with metadataFormat (prefix), metadataFormatClass (entry point), "
        "metadataFormatSchema, metadataFormatNamespace.",
        ["oai_dc", "redif", "amf"],
    )
    numOfRecords: int = setting(100, kinds.positive, "Records, headers or sets on a page.")  # noqa: N815
    liveTime: float = setting(86400.0, kinds.duration, "How long a resumption token is good for.", "24h")  # noqa: N815
    max_page: int = setting(4_000_000, kinds.size, "A page ends early when its records are larger than this.", "4MB")
    max_lists: int = setting(16, kinds.positive, "List requests in work at once; over it 503 with Retry-After.")
    retry_after: float = setting(10.0, kinds.duration, "The Retry-After of such an answer.", "10s")
    provenance: str = setting(
        "http://repec.org/", kinds.text, "Where the templates come from, in each record's provenance; empty: none."
    )
    description: tuple[str, ...] = setting(
        (), kinds.texts, "More description containers of Identify: XML, or the path of a file with it.", []
    )
    friends: tuple[str, ...] = setting((), kinds.texts, "Base URLs of befriended repositories.", [])
    content: str = setting("", kinds.text, "eprints description: what the repository holds; text or URL.")
    metadataPolicy: str = setting("", kinds.text, "eprints description: how metadata may be used; text or URL.")  # noqa: N815
    dataPolicy: str = setting("", kinds.text, "eprints description: how files may be used; text or URL.")  # noqa: N815
    submissionPolicy: str = setting("", kinds.text, "eprints description: how things get here; text or URL.")  # noqa: N815
    rights: str = setting("", kinds.web, "URL of the rights statement for all metadata; empty: none.")
    index: str = setting(
        "data/oai.sqlite", kinds.text, "The index of an SQLite catalogue; made anew where it is missing."
    )
    secret: str = setting(
        "data/oai.secret",
        kinds.text,
        "File with the secret that signs tokens, made on first use; or ARCHEC_OAI_SECRET.",
    )


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP server that ``archec serve`` starts."""

    host: str = setting("127.0.0.1", kinds.text, "Address to listen on; 0.0.0.0 or '::' for all.")
    port: int = setting(8080, kinds.port, "Port to listen on; 0: any that is free.")
    url: str = setting("", kinds.web, "Public address of the server, without a path of a capability; empty: as asked.")
    max_connections: int = setting(10_000, kinds.positive, "Connections at once; over it 503.")
    max_body: int = setting(64_000, kinds.size, "Largest body of a request.", "64kB")
    idle_timeout: float = setting(
        30.0, kinds.duration, "A connection without a whole request for this long is closed.", "30s"
    )
    send_timeout: float = setting(
        60.0, kinds.duration, "One whose client takes in nothing for this long is closed.", "60s"
    )
    stop_timeout: float = setting(
        30.0, kinds.duration, "How long requests in work may go on when the server stops.", "30s"
    )
    access_log: str = setting("-", kinds.text, "Access log: a file, '-' for stdout, or empty for none.")
