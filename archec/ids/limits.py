"""Limits: how long an id and its name on disk may be."""

from __future__ import annotations

__all__ = ["MAX_ID", "MAX_NAME"]

MAX_NAME = 255
"""Bytes in one path component on ext4, xfs, btrfs (NAME_MAX)."""

MAX_ID = 16_384
"""Characters of an id. No server takes a longer URL and no archive has a longer handle; both are keys of the
catalogue and stand in every list, so that megabytes in them would hurt everything."""
