"""Metadata formats: one module each, and how a third party's are found."""
