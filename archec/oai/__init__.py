"""OAI-PMH 2.0: the archive as a data provider. See ``docs/oai.md``."""
