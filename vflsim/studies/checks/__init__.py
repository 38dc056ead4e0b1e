"""Checks and estimates before a study: they write nothing."""
