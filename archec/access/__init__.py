"""The access layer: indexes and records of many archives, this one first, over HTTP."""
