"""The whole configuration: what is in no group, the groups, and what follows from them."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path

from archec.config import kinds
from archec.config.sections import FetchConfig, OaiConfig, ServerConfig, TextConfig
from archec.config.setting import group, setting

__all__ = ["DEFAULT_FILE", "Config", "plain_path"]

DEFAULT_FILE = "config.yaml"


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. Relative paths are relative to the folder of the file."""

    base: Path = field(default=Path())
    """The folder of the configuration file; not a setting."""
    file: Path = field(default=Path(DEFAULT_FILE), compare=False)
    """The configuration file, for messages; not a setting."""

    name: str = setting("archec", kinds.text, "Name of this archive, in reports and the User-Agent.")
    object_store: str = setting("archive", kinds.text, "The obi store.")
    ReDIF_directory: str = setting("data/current", kinds.text, "The current RePEc data set.")
    tarballs: str = setting("data/tarballs", kinds.text, "Where old data sets lie, by date.")
    work_directory: str = setting("data/work", kinds.text, "Scratch space of a run: about the size of the data set.")
    database: str = setting(
        "sqlite:///data/catalogue.sqlite",
        kinds.database,
        "The catalogue: sqlite:///PATH or mongodb://HOST/DATABASE (ARCHEC_DATABASE overrides).",
    )
    workers: int = setting(0, kinds.count, "Processes that read and write templates; 0: one for each core, at most 4.")
    max_template_file: int = setting(1_000_000_000, kinds.size, "Larger files of a data set are not read.", "1GB")
    max_loss: float = setting(
        0.05, kinds.share, "Losses of an archive's templates beyond this share in one run are held back ...", "5%"
    )
    max_loss_least: int = setting(20, kinds.count, "... if they are at least so many.")
    lost_confirmations: int = setting(2, kinds.positive, "Visits that find a file gone before it counts as lost.")
    lost_grace: float = setting(7 * 86400.0, kinds.duration, "Least time between the first and the last of them.", "7d")
    store_cosmetic: bool = setting(False, kinds.flag, "Also store files whose bytes changed and whose text did not.")
    max_files: int = setting(0, kinds.count, "Files to fetch in a run at most; 0: no limit.")
    max_bytes: int = setting(0, kinds.size, "Bytes to fetch in a run at most; 0: no limit.")
    max_time: float = setting(0.0, kinds.duration, "Time to fetch in a run at most; 0: no limit.", 0)
    min_free: float = setting(
        0.01, kinds.share, "A run stops cleanly when less than this share of the disk is left.", "1%"
    )
    fetch: FetchConfig = group(FetchConfig, "Fetching files.")  # noqa: RUF009
    text: TextConfig = group(TextConfig, "Taking text out of files.")  # noqa: RUF009
    server: ServerConfig = group(ServerConfig, "The HTTP server, 'archec serve'.")  # noqa: RUF009
    oai: OaiConfig = group(OaiConfig, "The OAI-PMH data provider, at /oai of the server.")  # noqa: RUF009

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
