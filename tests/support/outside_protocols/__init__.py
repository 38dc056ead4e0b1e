"""Protocols that are not part of vflsim: scenario files name them by path."""
