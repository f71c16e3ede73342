"""The text of fetched files and its checksums (vo), which distinguish a cosmetic change from a real one."""
