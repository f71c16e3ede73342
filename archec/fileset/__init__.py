"""Filesets: data sets behind landing pages, kept whole, with manifests. Import the public names from here.

Pure parts: ``model`` and ``status`` are the words, ``strategy`` what goes where, ``manifest``, ``checksums`` and
``paths`` the rules about files, ``public`` what may be kept, ``keeping`` the records, ``platforms`` what platforms mean
by their answers. Thin ones: ``asking`` asks them, ``download`` fetches one file; ``finding``, ``fetching`` and
``summary`` are the steps of ``ingest``, which ``run`` does for many requests.
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
