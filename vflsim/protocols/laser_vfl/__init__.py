"""LASER-VFL: a predictor for every party and every set of present embeddings (Valdeira et al. 2025)."""

from vflsim.protocols.laser_vfl.protocol import LaserVfl

__all__ = ["LaserVfl"]
