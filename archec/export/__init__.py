"""Exports: what the archive holds, in the forms of other programs."""
