"""Gather: one run over a data set, from its lock to its report (Fort Lee paper, "main part")."""
