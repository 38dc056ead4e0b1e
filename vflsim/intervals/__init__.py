"""Means with their intervals, over seeds and from within a run, and what a run must show before one counts."""
