"""The rounding layer (Qiu et al. 2024): whole numbers on the wire, with latent noise on request."""

from __future__ import annotations

from typing import Literal, Self, final

import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

from vflsim.codecs.base import Upward
from vflsim.codecs.frame import Shape, from_raw, raw, raw_bytes
from vflsim.codecs.latent_noise import release_epsilon, unchanged
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.quantities import PositiveNumber

_CODES = {8: torch.int8, 16: torch.int16}


@final
class LatentNoise(Part):
    """Laplace noise on whole numbers before a second rounding: [[x] + Lap(1/ε)] (Qiu et al. 2024, Eq. 9).

    Sampled in floating point, it is for simulation only.

    Example: ``{epsilon: 2}``
    """

    epsilon: PositiveNumber
    """ε; the scale of the noise is 1/ε. ``vflsim.codecs.latent_noise`` says what ε protects."""

    def draw(self, count: int, key: int) -> Tensor:
        """Return ``count`` numbers of Lap(1/ε), float64, from a key of 64 or 128 bits, by the inverse law."""
        words = np.random.Philox(key=key).random_raw(count) >> np.uint64(12)
        centred = torch.from_numpy((words.astype(np.float64) + 0.5) * 2.0**-52 - 0.5)  # within (−1/2, 1/2), never 0
        return -centred.sign() * (1 - 2 * centred.abs()).log() / self.epsilon


@final
class Round(Upward):
    """Each element becomes the nearest whole number, ties the even one; beyond ±(2^(bits−1) − 1) it saturates.

    Payload: a signed whole number of ``bits`` an element, little-endian. The lowest number, −2^(bits−1), stands for
    what is not finite, and arrives as nan. The gradient passes straight through. (The paper's Round(x) = ⌈x − 1/2⌉ and
    the nearest even number differ at ties only.)

    Example: ``{kind: round, bits: 16, noise: {epsilon: 2}, gradients: true}``
    """

    kind: Literal["round"] = "round"
    bits: Literal[8, 16] = 8
    """Bits for each element: int8 or int16 on the wire."""
    noise: LatentNoise | None = None
    """Noise before a second rounding. The receiver does not know it; its key is not sent."""
    _key: int = PrivateAttr(0)

    @property
    def elementwise(self) -> bool:
        """Whether there is no noise: every tensor has noise of its own."""
        return self.noise is None

    @property
    def hides(self) -> bool:
        """Whether there is noise."""
        return self.noise is not None

    def keyed(self, key: int) -> Self:
        """Return this codec with the noise of ``key``."""
        if self.noise is None:
            return self
        copy = self.model_copy()
        copy._key = key
        return copy

    @property
    def most(self) -> int:
        """The greatest whole number on the wire."""
        return int(2 ** (self.bits - 1) - 1)

    def promise(self, elements: int) -> str:
        """Give Eq. 10's probability, and the ε of one release (``vflsim.codecs.latent_noise``); empty without noise."""
        if self.noise is None:
            return ""
        epsilon = self.noise.epsilon
        return (
            f"latent noise leaves {100 * unchanged(epsilon):.1f} % of whole numbers as they are; ε = {epsilon:g} per "
            f"release covers one element that differs by 1, ε = "
            f"{release_epsilon(epsilon, elements, 2 * self.most):.4g} all of a sample's features at one client, in "
            f"{elements} elements; releases of a sample add up"
        )

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count one or two bytes for each element."""
        return raw_bytes(shape, _CODES[self.bits])

    def pack(self, x: Tensor) -> bytes:
        """Return the whole numbers."""
        return raw(self._codes(x))

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Decode the whole numbers."""
        return self._decoded(from_raw(payload, shape, _CODES[self.bits]), dtype)

    def through(self, x: Tensor) -> Tensor:
        """Round and decode, without making bytes."""
        return self._decoded(self._codes(x), x.dtype)

    def saturated(self, x: Tensor) -> Tensor:
        """Return which finite elements are rounded beyond the range, before or after the noise."""
        whole, noisy = self._rounded(x)
        return x.isfinite() & ((whole.abs() > self.most) | (noisy.abs() > self.most))

    def _rounded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nearest whole numbers, and after saturation and noise the nearest ones again."""
        whole = x.to(torch.promote_types(x.dtype, torch.float32)).round()
        if self.noise is None:
            return whole, whole
        latent = self.noise.draw(x.numel(), self._key).reshape(x.shape).to(x.device)
        return whole, (whole.clamp(-self.most, self.most).double() + latent).round()

    def _codes(self, x: Tensor) -> Tensor:
        codes = self._rounded(x)[1].clamp(-self.most, self.most)
        return torch.where(x.isfinite(), codes, -self.most - 1).to(_CODES[self.bits])

    def _decoded(self, codes: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.where(codes < -self.most, torch.nan, codes.to(dtype))
