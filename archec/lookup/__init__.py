"""Lookup: what the archive holds of one obi, at any time. Reads catalogue and store, writes nothing."""
