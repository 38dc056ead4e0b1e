"""Codecs of fewer bits an element: casts, signs, and the rounding layer (Qiu et al. 2024) with latent noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import PrivateAttr

from vflsim.codecs.base import Codec, Upward
from vflsim.codecs.frame import Shape, from_raw, pack_bits, packed_bytes, raw, raw_bytes, unpack_bits
from vflsim.errors import NonFiniteError
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.on_demand import Tensor, dtype as dtype_named, torch
from vflsim.vocabulary.quantities import PositiveNumber


class Cast(Codec):
    """Each element becomes the nearest number of ``target``; finite numbers beyond its range become its greatest.

    Payload: the numbers as in memory, little-endian. Infinity and nan arrive as they are. The gradient passes straight
    through. Numbers of float64 become float32 first, as PyTorch casts them.
    """

    target: ClassVar[str]
    """The dtype on the wire."""

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes of all elements in ``target``."""
        return raw_bytes(shape, dtype_named(self.target))

    def pack(self, x: Tensor) -> bytes:
        """Return the memory of the cast tensor."""
        return raw(self._cast(x))

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Restore the cast tensor, in ``dtype``."""
        return from_raw(payload, shape, dtype_named(self.target)).to(dtype)

    def through(self, x: Tensor) -> Tensor:
        """Cast there and back."""
        return self._cast(x).to(x.dtype)

    def saturated(self, x: Tensor) -> Tensor:
        """Return which finite elements the cast alone would make infinite."""
        return x.isfinite() & x.to(dtype_named(self.target)).isinf()

    def _cast(self, x: Tensor) -> Tensor:
        narrow = dtype_named(self.target)
        cast, most = x.to(narrow), torch.finfo(narrow).max
        return torch.where(self.saturated(x), cast.sign() * most, cast)


@final
class Float16(Cast):
    """IEEE half precision: 11 significant bits, up to 65,504; the least positive number is 6e-8.

    Example: ``{kind: float16}``
    """

    kind: Literal["float16"] = "float16"
    target: ClassVar[str] = "float16"


@final
class BFloat16(Cast):
    """Brain floating point: the range of float32 with 8 significant bits, an error of at most 1/256 of the number.

    Example: ``{kind: bfloat16}``
    """

    kind: Literal["bfloat16"] = "bfloat16"
    target: ClassVar[str] = "bfloat16"


@final
class Binarise(Upward):
    """Each element becomes its sign: 1 from the threshold 0 on, −1 below; 8 elements in a byte.

    The gradient passes straight through, also beyond ±1, where binarised networks often cut it off. One bit has no
    place for nan: sending it raises ``NonFiniteError``.

    Example: ``{kind: binarise, gradients: true}``
    """

    kind: Literal["binarise"] = "binarise"

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count one bit for each element, rounded up."""
        return packed_bytes(math.prod(shape), 1)

    def pack(self, x: Tensor) -> bytes:
        """Return the bits, 1 for elements of at least 0."""
        return pack_bits((self.through(x) > 0).long(), 1)

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Decode the bits: ±1."""
        return (2 * unpack_bits(payload, math.prod(shape), 1) - 1).to(dtype).reshape(shape)

    def through(self, x: Tensor) -> Tensor:
        """Return the signs."""
        if x.isnan().any():
            what = "a tensor with an element that is no number cannot be binarised"
            raise NonFiniteError(what)
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)


def unchanged(epsilon: float) -> float:
    """Return P[|Lap(1/ε)| < 1/2] = 1 − exp(−ε/2), the probability that noise leaves a whole number as is (Eq. 10)."""
    return -math.expm1(-epsilon / 2)


def release_epsilon(epsilon: float, elements: int = 1, difference: float = 1) -> float:
    """Return the ε of one release of a row of which ``elements`` rounded values differ by up to ``difference`` each.

    ``epsilon`` is that of the noise, Lap(1/ε). Whole numbers within ±m differ by at most 2 m.
    """
    return epsilon * elements * difference


@final
class LatentNoise(Part):
    """Laplace noise on whole numbers before a second rounding: [[x] + Lap(1/ε)] (Qiu et al. 2024, Eq. 9).

    Sampled in floating point, it is for simulation only.

    Example: ``{epsilon: 2}``
    """

    epsilon: PositiveNumber
    """ε; the scale of the noise is 1/ε. ``vflsim.codecs.round`` says what ε protects."""

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
        """Give Eq. 10's probability, and the ε of one release (``vflsim.codecs.round``); empty without noise."""
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
        return raw_bytes(shape, dtype_named(f"int{self.bits}"))

    def pack(self, x: Tensor) -> bytes:
        """Return the whole numbers."""
        return raw(self._codes(x))

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Decode the whole numbers."""
        return self._decoded(from_raw(payload, shape, dtype_named(f"int{self.bits}")), dtype)

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
        return torch.where(x.isfinite(), codes, -self.most - 1).to(dtype_named(f"int{self.bits}"))

    def _decoded(self, codes: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.where(codes < -self.most, torch.nan, codes.to(dtype))


Scalar = Callable[[Tensor], Tensor]
"""A twice differentiable function of one embedding, (d,), to a number: one output of a top model."""


class RoundingError(NamedTuple):
    """A bound on |g(x) − g(z)|, or an estimate of it; numbers, in the units of g.

    ``certified``: the ``remainder`` is a proven bound. If not, it is the largest found at a sample of points: an
    estimate from below, and no certificate.
    """

    first_order: float
    remainder: float
    certified: bool

    @property
    def total(self) -> float:
        """The sum of first-order term and remainder."""
        return self.first_order + self.remainder


def first_order_error(g: Scalar, z: Tensor) -> float:
    """Return ½ Σ_i |∂g(z)/∂z_i|, the exact first-order term of Thm 1."""
    return float(torch.func.jacrev(g)(z).detach().abs().sum() / 2)


def rounding_error(g: Scalar, z: Tensor, curvature: float) -> RoundingError:
    """Return the bound of Thm 1 at the rounded embedding ``z``, (d,).

    ``curvature`` bounds Σ_ij |∂²g/∂y_i∂y_j| in the cube around ``z``: 0 for a linear g.
    """
    return RoundingError(first_order_error(g, z), curvature / 8, True)


def sampled_rounding_error(g: Scalar, z: Tensor, points: Tensor) -> RoundingError:
    """Return the first-order term and the largest remainder found at ``points``, (n, d) in the cube around ``z``.

    For models without a known bound of their curvature. The maximum of a sample is no bound.
    """
    if len(points) and float((points - z).abs().max()) > 0.5:
        raise ValueError("points outside the cube of the theorem; allowed: at most 1/2 from z in every element")
    curvatures = [float(torch.func.jacrev(torch.func.jacrev(g))(y).detach().abs().sum()) for y in points]
    return RoundingError(first_order_error(g, z), max(curvatures, default=0.0) / 8, False)
