"""Differential privacy of embeddings: mechanisms that clients apply, and their accounting."""
