"""EASTER, which trains a model for every party in one run, and the protocols of its comparison."""

from vflsim.protocols.easter.baselines import AggVfl, Local, PyVertical
from vflsim.protocols.easter.protocol import Easter

__all__ = ["AggVfl", "Easter", "Local", "PyVertical"]
