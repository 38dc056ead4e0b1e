"""Noise inside a network: VAFL's perturbed local embedding (Sec. 4.1, Eq. 10, 11b)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vflsim.learning.models.layers import PolynomialNetwork

_AFFINE = nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d


def affine_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers w_l u + b_l of a network, first to last; a polynomial is one layer.

    Raises ValueError for a network that is no chain of layers, or that does not end in an affine one.
    """
    if isinstance(module, PolynomialNetwork):
        return [module]
    children = [*module] if isinstance(module, nn.Sequential) else [module]
    layers: list[nn.Module] = [child for child in children if isinstance(child, _AFFINE)]
    hidden = any(isinstance(each, _AFFINE) for child in children if child not in layers for each in child.modules())
    if not layers or hidden or children[-1] is not layers[-1]:
        raise ValueError(
            "noise at every layer needs a chain of layers (nn.Sequential) that ends in an affine one; allowed: linear, "
            "polynomial, mlp, cnn, lenet, and such modules; choose one, or the mechanism gaussian, which takes any"
        )
    return layers


@contextmanager
def perturbed(layers: Sequence[nn.Module], std: float, bits: Callable[[int], np.random.BitGenerator]) -> Iterator[None]:
    """Add Z_l ~ U[−√3 std, √3 std] to the output of layer l while the block runs; ``bits`` are those of layer l."""
    with ExitStack() as hooks:
        for number, layer in enumerate(layers, start=1):
            hooks.callback(layer.register_forward_hook(_adding(std, bits(number))).remove)
        yield


def _adding(std: float, bits: np.random.BitGenerator) -> Callable[..., Tensor]:
    def add(_layer: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        words = bits.random_raw(output.numel()) >> np.uint64(11)
        uniforms = torch.from_numpy((words.astype(np.float64) + 0.5) * 2.0**-52 - 1.0)  # within (−1, 1)
        return output + (math.sqrt(3) * std * uniforms).reshape(output.shape).to(output.device, output.dtype)

    return add
