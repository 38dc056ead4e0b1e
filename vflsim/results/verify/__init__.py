"""Verify results: digests, and rules that every finished run obeys."""
