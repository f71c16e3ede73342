"""Helpers for platforms, one module each; ``registry`` lists them."""
