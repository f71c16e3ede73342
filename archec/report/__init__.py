"""Reports over a whole archive: what was lost, what changed, how much is covered."""
