"""Logistic regression on ciphertexts, with a coordinator (Hardy et al. 2017) or without (Chen et al. 2021)."""

from vflsim.protocols.he_lr.protocol import HeLr

__all__ = ["HeLr"]
