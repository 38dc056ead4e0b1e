"""CELU-VFL: local steps on cached exchanges while messages are under way (Fu et al. 2022)."""

from vflsim.protocols.celu_vfl.protocol import CeluVfl

__all__ = ["CeluVfl"]
