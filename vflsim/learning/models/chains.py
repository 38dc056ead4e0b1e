"""Chains of linear layers: their weights, memory and FLOPs by formulas, before PyTorch is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import pairwise

from vflsim.learning.models.shapes import Activation

_KEEPS_OUTPUT = {"relu", "tanh", "sigmoid"}
"""Activations whose backward pass reads their output; that of the others reads their input."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a forward pass of some rows, without the weights.

    ``kept`` for the backward pass, input included; ``largest``: what the most demanding operation reads and writes;
    ``output``.
    """

    kept: int = 0
    largest: int = 0
    output: int = 0

    def extended(self, more: Footprint, steps: float) -> Footprint:
        """Extend the line from this one to ``more`` by so many steps of its length."""
        ends = zip(astuple(self), astuple(more), strict=True)
        return Footprint(*(max(0, round(here + steps * (there - here))) for here, there in ends))


@dataclass(frozen=True, slots=True)
class Chain:
    """Linear layers of these ``widths``, with an ``activation`` between them, and with ``last`` after them.

    With ``powers`` above 1 it is one layer of each power of the input, and their sum.

    Example::

        Chain((64, 32, 10), "relu").parameters  # 2410
    """

    widths: tuple[int, ...]
    activation: Activation | None = None
    last: Activation | None = None
    bias: bool = True
    powers: int = 1

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return self.powers * sum((inputs + self.bias) * outputs for inputs, outputs in pairwise(self.widths))

    def flops(self, rows: int, input_gradient: bool = False) -> tuple[float, float]:
        """Count the FLOPs of the forward and of the backward pass of so many rows: two a multiply-add."""
        products = [2.0 * rows * self.powers * inputs * outputs for inputs, outputs in pairwise(self.widths)]
        by_inputs = sum(products) if input_gradient else sum(products[1:])
        return sum(products), sum(products) + by_inputs

    def footprint(self, rows: int, itemsize: int) -> Footprint:
        """Count the bytes of a forward pass of so many rows."""
        bytes_ = rows * itemsize
        inputs, output = self.widths[0], self.widths[-1]
        if self.powers > 1:  # powers are multiplied up, and terms are added up
            largest = max(inputs + output, (3 if self.powers > 2 else 2) * inputs, 3 * output)
            return Footprint(bytes_ * self.powers * inputs, bytes_ * largest, bytes_ * output)
        largest = max(*map(sum, pairwise(self.widths)), *(2 * width for width, _ in self._activated), 0)
        return Footprint(bytes_ * sum(self._kept()), bytes_ * largest, bytes_ * output)

    @property
    def _activated(self) -> list[tuple[int, Activation]]:
        after = [*[self.activation] * (len(self.widths) - 2), self.last]
        return [(width, each) for width, each in zip(self.widths[1:], after, strict=True) if each is not None]

    def _kept(self) -> Iterator[int]:
        """Yield the widths of what the backward pass reads: every layer's input, and what activations read."""
        yield from self.widths[:-1]
        for place, (width, each) in enumerate(self._activated, start=1):
            if each not in _KEEPS_OUTPUT or place == len(self.widths) - 1:
                yield width
