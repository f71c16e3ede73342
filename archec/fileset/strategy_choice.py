"""Selects the strategy for a data set and applies size limits: pure functions of the number and sizes of its files.

Limits are inclusive: a data set over one of ``web_*`` goes to archive.org, one over one of ``max_*`` is not ingested.
Unknown sizes count as 0.
"""

from __future__ import annotations

from archec.config import FilesetConfig
from archec.fileset.model import FilesetPlatformItem, IngestStrategy
from archec.fileset.status import Status


def choose_strategy(item: FilesetPlatformItem, policy: FilesetConfig | None = None) -> IngestStrategy:
    """Returns the strategy for a data set. The default ``policy`` has the limits of the shipped configuration."""
    limits = policy or FilesetConfig()
    large = (
        item.file_count > limits.web_max_files
        or item.total_size > limits.web_max_total
        or item.largest_size > limits.web_max_file
    )
    if item.bundle_only:
        return IngestStrategy.ARCHIVEORG_FILESET_BUNDLED if large else IngestStrategy.WEB_FILESET_BUNDLED
    if item.file_count == 1:
        return IngestStrategy.ARCHIVEORG_FILE if large else IngestStrategy.WEB_FILE
    return IngestStrategy.ARCHIVEORG_FILESET if large else IngestStrategy.WEB_FILESET


chose_strategy = choose_strategy
"""The spelling of the first proposal."""


def too_much(item: FilesetPlatformItem, limits: FilesetConfig) -> Status | None:
    """The status of a data set that has too many files or is too large; None if it is within the limits."""
    if item.file_count > limits.max_file_count:
        return Status.TOO_MANY_FILES
    if item.total_size > limits.max_total_size:
        return Status.TOO_LARGE_SIZE
    return None
