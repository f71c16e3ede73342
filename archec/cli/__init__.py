"""The command line: one file per command, thin shells over the capabilities."""
