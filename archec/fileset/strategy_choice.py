"""Which strategy a data set gets, and what is too much: pure functions of its count and sizes."""

from __future__ import annotations

from typing import NamedTuple

from archec.fileset.model import FilesetPlatformItem, IngestStrategy
from archec.fileset.status import Status

_GIB = 1 << 30


class StrategyPolicy(NamedTuple):
    """The limits; equal passes. More than any of ``web_*`` is for archive.org, more than any of ``max_*`` for no one.
    Sizes are bytes; those that the platform does not show count as 0."""

    web_max_files: int = 20
    web_max_total: int = _GIB
    web_max_file: int = 128 << 20
    max_file_count: int = 200
    max_total_size: int = 64 * _GIB


def choose_strategy(item: FilesetPlatformItem, policy: StrategyPolicy | None = None) -> IngestStrategy:
    """The strategy that the policy wants for a data set; ``policy``: by default as shipped."""
    limits = policy or StrategyPolicy()
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
"""The first proposal's spelling."""


def too_much(item: FilesetPlatformItem, policy: StrategyPolicy) -> Status | None:
    """The status of a data set that has too many files or is too large; None if it is not."""
    if item.file_count > policy.max_file_count:
        return Status.TOO_MANY_FILES
    if item.total_size > policy.max_total_size:
        return Status.TOO_LARGE_SIZE
    return None
