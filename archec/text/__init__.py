"""The text of fetched files and its checksums (vi, vo), which distinguish a cosmetic change from a real one."""
