"""A vault of WARC files with CDXJ indexes, which is extended by new records only."""
