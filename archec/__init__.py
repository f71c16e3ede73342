"""archec: a time-addressed dark archive for RePEc templates and the files they point to."""

from __future__ import annotations

__version__ = "0.1.0"
