"""The HTTP server that serves the routes of all capabilities."""
