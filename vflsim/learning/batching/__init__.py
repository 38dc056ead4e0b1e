"""Compute many clients together: their parameters lie side by side, and one tensor call does all equal operations."""
