"""EASTER: a model for every party out of one run (heterogeneous models)."""

from vflsim.protocols.easter.protocol import Easter

__all__ = ["Easter"]
