"""Coroutines run once, without time and values, and what parties do in a round, as data."""
