"""Blinding (EASTER Eq. 4–6): clients add masks to fixed-point embeddings, and the masks cancel in the sum of all."""

from vflsim.learning.privacy.blinding.blinding import BLINDING_OFF, AnyBlinding, Blinding
from vflsim.learning.privacy.blinding.fixed_point import BlindedSum

__all__ = ["BLINDING_OFF", "AnyBlinding", "BlindedSum", "Blinding"]
