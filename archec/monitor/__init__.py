"""How an archive is doing: its runs, its state on one screen, figures for Prometheus, a page with plots."""
