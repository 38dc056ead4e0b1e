"""SecureBoost: gradient-boosted trees on encrypted gradients (Cheng et al. 2021)."""

from vflsim.protocols.secureboost.protocol import SecureBoost

__all__ = ["SecureBoost"]
