"""BS-VFL: a bounded window of batches in flight per client (Wang et al. 2025)."""

from vflsim.protocols.bs_vfl.protocol import BsVfl

__all__ = ["BsVfl"]
