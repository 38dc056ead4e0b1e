"""Shards: shares of a plan that machines compute independently, and their collection."""
