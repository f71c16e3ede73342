"""The configuration: one typed, frozen model of all settings, and the file from which it is read.

``model`` defines every setting once, with its type, default and help. ``file`` uses it to read ``config.yaml``, and to
write the documented one that is shipped. Import from here.
"""

from archec.config.collections import CollectionConfig, ResourceConfig, SourceConfig, StepConfig
from archec.config.file import as_yaml, load, parse
from archec.config.model import (
    DEFAULT_FILE,
    AccessConfig,
    Config,
    FetchConfig,
    FilesetConfig,
    OaiConfig,
    ServerConfig,
    TextConfig,
    plain_path,
    setting_names,
)
from archec.config.types import Denial, FormatConfig, OaiCollectionConfig, RuleConfig

__all__ = [
    "DEFAULT_FILE",
    "AccessConfig",
    "CollectionConfig",
    "Config",
    "Denial",
    "FetchConfig",
    "FilesetConfig",
    "FormatConfig",
    "OaiCollectionConfig",
    "OaiConfig",
    "ResourceConfig",
    "RuleConfig",
    "ServerConfig",
    "SourceConfig",
    "StepConfig",
    "TextConfig",
    "as_yaml",
    "load",
    "parse",
    "plain_path",
    "setting_names",
]
