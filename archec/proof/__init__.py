"""Proof: seals of an archive, and proofs that something was recorded by then."""
