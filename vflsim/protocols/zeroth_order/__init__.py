"""Zeroth-order clients: the server answers an embedding with differences of losses, not with a gradient."""

from vflsim.protocols.zeroth_order.protocol import Czofo, Dpzv

__all__ = ["Czofo", "Dpzv"]
