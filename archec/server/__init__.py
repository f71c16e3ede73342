"""The HTTP server that capabilities join, each with its own routes."""
