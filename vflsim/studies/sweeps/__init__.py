"""Sweeps and tunings: plan their points, and run all of them."""
