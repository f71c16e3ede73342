"""The benchmarks behind ``scripts/bench``: each runs archec and its peers side by side (docs/benchmarks.md)."""
