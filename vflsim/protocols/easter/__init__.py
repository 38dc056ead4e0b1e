"""EASTER, which trains a model for every party in one run, and the protocols of its comparison."""

from vflsim.protocols.easter.agg_vfl import AggVfl
from vflsim.protocols.easter.local import Local
from vflsim.protocols.easter.protocol import Easter
from vflsim.protocols.easter.pyvertical import PyVertical

__all__ = ["AggVfl", "Easter", "Local", "PyVertical"]
