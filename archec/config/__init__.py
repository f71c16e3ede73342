"""The configuration: one typed, frozen model of all settings, and the file from which it is read.

``model`` defines every setting once, with its type, default and help. ``file`` uses it to read ``config.yaml``, and to
write the documented one that is shipped. Import from here.
"""

from archec.config.collections import CollectionConfig as CollectionConfig
from archec.config.collections import ResourceConfig as ResourceConfig
from archec.config.collections import SourceConfig as SourceConfig
from archec.config.collections import StepConfig as StepConfig
from archec.config.file import as_yaml as as_yaml
from archec.config.file import load as load
from archec.config.file import parse as parse
from archec.config.file import with_environment as with_environment
from archec.config.model import DEFAULT_FILE as DEFAULT_FILE
from archec.config.model import AccessConfig as AccessConfig
from archec.config.model import Config as Config
from archec.config.model import FetchConfig as FetchConfig
from archec.config.model import FilesetConfig as FilesetConfig
from archec.config.model import OaiConfig as OaiConfig
from archec.config.model import ServerConfig as ServerConfig
from archec.config.model import TextConfig as TextConfig
from archec.config.model import plain_path as plain_path
from archec.config.model import setting_names as setting_names
from archec.config.types import Denial as Denial
from archec.config.types import FormatConfig as FormatConfig
from archec.config.types import OaiCollectionConfig as OaiCollectionConfig
from archec.config.types import RuleConfig as RuleConfig
