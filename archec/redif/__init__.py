"""Reading RePEc data: sources, blobs, raw templates, full templates, lint (design, section 4)."""
