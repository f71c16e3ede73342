"""Reports over a whole archive: losses, changes, coverage."""
