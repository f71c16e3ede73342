"""The obi store: names to paths, durable batched writing, safe reading, journals, lock."""
