"""Closed forms of what the timing simulation measures. Knows delays; knows nothing of models or protocols."""
