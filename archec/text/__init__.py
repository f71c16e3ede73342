"""The text of fetched files and its checksums (vi, vo), which tell a cosmetic change from a real one."""
