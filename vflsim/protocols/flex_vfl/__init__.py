"""Flex-VFL: every party takes its own number of local steps (Castiglia et al. 2023)."""

from vflsim.protocols.flex_vfl.protocol import FlexVfl

__all__ = ["FlexVfl"]
