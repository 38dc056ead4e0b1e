"""EASTER, which trains a model for every party in one run, and the protocols of its comparison."""

from vflsim.protocols.easter.protocol import AggVfl, Easter, Local, PyVertical

__all__ = ["AggVfl", "Easter", "Local", "PyVertical"]
