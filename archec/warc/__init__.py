"""WARC records and CDXJ index lines of what an archive holds."""
