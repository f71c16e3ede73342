"""The database for fast queries, derived from the journals, on SQLite or MongoDB."""
