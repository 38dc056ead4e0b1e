"""Coded computing: exact arithmetic in prime fields, Lagrange coding, quantisation."""
