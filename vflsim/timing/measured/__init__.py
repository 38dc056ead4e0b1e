"""Timing from measurements: logs of activities, fitted laws, calibrated scenarios."""
