"""The list of platforms, and selection of the one for a request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points

from archec.config.types import PlatformConfig
from archec.errors import ConfigError
from archec.fileset.model import IngestRequest, Resource
from archec.fileset.platforms.archiveorg import ArchiveOrgHelper
from archec.fileset.platforms.base import FilesetPlatformHelper, host_of
from archec.fileset.platforms.dataverse import DataverseHelper
from archec.fileset.platforms.dryad import DryadHelper
from archec.fileset.platforms.dspace import DspaceHelper
from archec.fileset.platforms.figshare import FigshareHelper, FourTuHelper
from archec.fileset.platforms.generic import GenericHelper
from archec.fileset.platforms.hal import HalHelper
from archec.fileset.platforms.mendeley import MendeleyHelper
from archec.fileset.platforms.openicpsr import OpenIcpsrHelper
from archec.fileset.platforms.osf import OsfHelper
from archec.fileset.platforms.zenodo import B2shareHelper, InvenioHelper, ZenodoHelper
from archec.fileset.status import FilesetProblem, PlatformError
from archec.ids import FilesetId, is_url

ENTRY_POINTS = "archec.fileset_platforms"
"""The entry point group by which other packages add helpers: name = module:class."""

_NAME = re.compile("[a-z0-9][a-z0-9-]*")

OWN: Sequence[type[FilesetPlatformHelper]] = (
    ZenodoHelper, FigshareHelper, ArchiveOrgHelper, OsfHelper, DryadHelper, MendeleyHelper, OpenIcpsrHelper,
    FourTuHelper, B2shareHelper, HalHelper, InvenioHelper, DspaceHelper, DataverseHelper, GenericHelper,
)  # fmt: skip
"""archec's own helpers in the order in which they are tried. Dataverse, which may be on any host, and the generic
fallback are last."""


class Registry:
    """The configured platforms. Raises ConfigError for an unknown platform."""

    def __init__(self, configs: Mapping[str, PlatformConfig]) -> None:
        classes = {cls.name: cls for cls in (*_others(), *OWN)}
        for name in configs:
            if name not in classes:
                raise ConfigError(
                    f"fileset.platforms: there is no platform {name!r}", hint=f"available: {', '.join(sorted(classes))}"
                )
        self.helpers = [_made(cls, configs.get(name)) for name, cls in classes.items()]
        # Platforms with configured hosts go first, since fallbacks may match the same hosts.
        self.helpers.sort(key=lambda helper: not helper.config.hosts)

    def match(self, request: IngestRequest, resource: Resource | None) -> FilesetPlatformHelper | None:
        """The first platform that matches a request; None if there is none, or if it is disabled. Raises a
        FilesetProblem if a helper fails."""
        for helper in self.helpers:
            with _Guarded(helper):
                if helper.match_request(request, resource, None):
                    return helper if helper.config.enabled else None
        return None

    def identify(self, url: str) -> FilesetId | None:
        """The platform, its domain, and the id and version of a data set in a URL; None if no platform matches. The id
        may be that of one version. Raises as ``match`` does."""
        helper = self.match(IngestRequest(url), None) if is_url(url) and host_of(url) else None
        if helper is None:
            return None
        with _Guarded(helper):
            work = helper.id_in(url)
            return FilesetId(helper.name, helper.domain(url), work, helper.version_in(url)) if work else None


class _Guarded:
    """Within it a helper works, which may be of another package: all that it raises but problems of a data set becomes
    PlatformError."""

    def __init__(self, helper: FilesetPlatformHelper) -> None:
        self._helper = helper

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, (Exception, SystemExit)) and not isinstance(error, FilesetProblem):
            raise PlatformError(f"the helper for {self._helper.name} fails: {_named(error)}") from error


def _named(error: BaseException) -> str:
    """What a helper of another package has raised, in a few words."""
    return f"{type(error).__name__}: {error}"[:300]


def _made(cls: type[FilesetPlatformHelper], config: PlatformConfig | None) -> FilesetPlatformHelper:
    """The helper with a configuration. Raises ConfigError if it cannot be set up."""
    try:
        helper = cls(config)
        _ = helper.config.enabled
    except (Exception, SystemExit) as error:
        raise ConfigError(f"the platform {cls.name} cannot be set up: {_named(error)}") from error
    return helper


def _others() -> Iterator[type[FilesetPlatformHelper]]:
    """The helpers of other packages. Raises ConfigError for what is none."""
    names = {"direct", *(cls.name for cls in OWN)}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            cls = point.load()
        except (Exception, SystemExit) as error:  # a module may do anything when it is imported
            why = f"{point.value} cannot be loaded: {_named(error)}"
            raise ConfigError(f"the platform {point.name}: {why}") from error
        if not (isinstance(cls, type) and issubclass(cls, FilesetPlatformHelper) and _NAME.fullmatch(str(cls.name))):
            what = "a FilesetPlatformHelper with a name of lower-case letters, digits and hyphens"
            raise ConfigError(f"the platform {point.name}: {point.value} is not {what}")
        if cls.questions is FilesetPlatformHelper.questions:
            raise ConfigError(f"the platform {point.name}: {point.value} has no method questions")
        if cls.name in names:
            raise ConfigError(f"the platform {point.name}: there is another one with the name {cls.name}")
        names.add(cls.name)
        yield cls
