"""The state of an archive: its runs, its status on one screen, metrics for Prometheus, a page with plots."""
