"""WARC records and CDXJ index lines for the contents of an archive."""
