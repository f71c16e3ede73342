"""Filesets: complete copies of the data sets behind landing pages, with manifests. Import the public names from here.

Pure modules: ``model`` and ``status`` define the data types, ``strategy_choice`` selects a strategy, ``manifest``,
``checksums`` and ``paths`` hold the rules for files, ``redaction`` removes secrets, ``records`` builds journal records,
and ``platforms`` interprets the responses of platforms. Modules with I/O: ``asking`` sends requests to platforms,
``download`` fetches one file, and ``finding``, ``fetching`` and ``summary`` are the steps of ``ingest``, which ``run``
calls for each request.
"""

from __future__ import annotations

from archec.fileset.model import (
    ArchiveStrategyResult,
    FilesetManifestFile,
    FilesetPlatformItem,
    IngestRequest,
    IngestStrategy,
)
from archec.fileset.platforms.base import FilesetPlatformHelper
from archec.fileset.status import FilesetPlatformScopeError, PlatformRestrictedError, Status
from archec.fileset.strategies import FilesetIngestStrategy
from archec.fileset.strategy_choice import choose_strategy, chose_strategy

__all__ = [
    "ArchiveStrategyResult",
    "FilesetIngestStrategy",
    "FilesetManifestFile",
    "FilesetPlatformHelper",
    "FilesetPlatformItem",
    "FilesetPlatformScopeError",
    "IngestRequest",
    "IngestStrategy",
    "PlatformRestrictedError",
    "Status",
    "choose_strategy",
    "chose_strategy",
]
