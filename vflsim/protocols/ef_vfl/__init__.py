"""EF-VFL: compressed differences to surrogates that both ends keep (Valdeira et al. 2025)."""

from vflsim.protocols.ef_vfl.protocol import EfVfl

__all__ = ["EfVfl"]
