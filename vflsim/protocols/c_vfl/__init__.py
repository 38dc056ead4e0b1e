"""C-VFL: compressed embeddings and server model, and several local steps (Castiglia et al. 2022)."""

from vflsim.protocols.c_vfl.protocol import CVfl

__all__ = ["CVfl"]
