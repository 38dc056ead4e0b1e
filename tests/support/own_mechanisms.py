"""Mechanisms of the tests' own, as users write them: some work, and some break their contract, each in one way."""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vflsim.protocol import Mechanism, PositiveNumber, Released


class Normal(Mechanism):
    """Clip rows, and add Gaussian noise, as vflsim's own does; ε by the simple bound √(2 ln(1.25/δ)) / multiplier."""

    kind: Literal["normal"] = "normal"
    clip: PositiveNumber
    multiplier: PositiveNumber

    @property
    def sensitivity(self) -> float:
        return 2 * self.clip

    @property
    def sigma(self) -> float:
        return self.multiplier * self.sensitivity

    def bounded(self, h: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(h, dim=1, keepdim=True)
        return h * (self.clip / norms.clamp(min=self.clip))

    def noise(self, shape: tuple[int, ...], dtype: torch.dtype, bits: np.random.BitGenerator) -> Tensor:
        words = bits.random_raw(math.prod(shape)) >> np.uint64(12)
        uniforms = (words.astype(np.float64) + 0.5) * 2.0**-52
        return (self.sigma * torch.special.ndtri(torch.from_numpy(uniforms))).reshape(shape).to(dtype)

    def spent(self, released: Released) -> float:
        return self.epsilon_after(released.most)

    def epsilon_after(self, releases: int) -> float:
        return releases * math.sqrt(2 * math.log(1.25 / self.delta)) / self.multiplier

    def promise(self) -> str:
        return f"ε = {self.epsilon_after(1):.4g} per release"


class Mixing(Normal):
    def bounded(self, h: Tensor) -> Tensor:
        return super().bounded(h) - super().bounded(h).mean(0)


class Far(Normal):
    def bounded(self, h: Tensor) -> Tensor:
        return 3 * super().bounded(h)


class Other(Normal):
    def bounded(self, h: Tensor) -> Any:
        return super().bounded(h).sum(1)


class Quiet(Normal):
    def noise(self, shape: tuple[int, ...], dtype: torch.dtype, bits: np.random.BitGenerator) -> Tensor:
        return super().noise(shape, dtype, bits) / 2


class Drawing(Normal):
    def noise(self, shape: tuple[int, ...], dtype: torch.dtype, bits: np.random.BitGenerator) -> Tensor:
        return self.sigma * torch.randn(shape, dtype=dtype)


class Flat(Normal):
    def noise(self, shape: tuple[int, ...], dtype: torch.dtype, bits: np.random.BitGenerator) -> Tensor:
        return super().noise((math.prod(shape),), dtype, bits)


class Forgetful(Normal):
    def spent(self, released: Released) -> float:
        return 10.0 / released.most if released.most else 0.0


class Eager(Normal):
    def epsilon_after(self, releases: int) -> float:
        return 1.0 + releases


class Silent(Normal):
    def promise(self) -> str:
        return ""


class Unbounded(Normal):
    @property
    def sensitivity(self) -> float:
        return math.inf
