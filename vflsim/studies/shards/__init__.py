"""Shards: shares of a plan that machines compute apart, and their collection."""
