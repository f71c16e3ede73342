"""Audit: checks that held files exist and are unchanged, and that the archive is consistent."""
