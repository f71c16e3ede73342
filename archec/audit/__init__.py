"""Audit: whether what is held is still there and still the same, and whether the archive fits together."""
