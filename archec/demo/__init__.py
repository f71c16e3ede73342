"""The demo: a small web site with a data set, and an archive that gathers it."""
