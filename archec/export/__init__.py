"""A vault of WARC files with CDXJ indexes, which grows by what is new."""
