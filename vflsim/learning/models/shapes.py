"""What models say before PyTorch is there: shapes of tables, names of layers, and costs of chains of linear layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Literal

Activation = Literal["relu", "leaky_relu", "elu", "gelu", "silu", "tanh", "sigmoid"]
Norm = Literal["batch", "group"]


class TableShape(tuple[int, ...]):
    """The shape (features,) of a table's rows, with each column's ``cardinalities``: 0 where it holds numbers.

    A categorical column holds codes from 0 to its cardinality − 1; 0 stands for categories without training rows.
    """

    cardinalities: tuple[int, ...]

    def __new__(cls, cardinalities: Sequence[int]) -> TableShape:
        """Make the shape of so many columns."""
        shape = super().__new__(cls, (len(cardinalities),))
        shape.cardinalities = tuple(cardinalities)
        return shape

    def __getnewargs__(self) -> tuple[tuple[int, ...]]:
        return (self.cardinalities,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableShape) and self.cardinalities == other.cardinalities

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.cardinalities)


def cardinalities_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the cardinality of each column of a table, 0 for numbers. Raises ValueError for images."""
    if len(shape) != 1:
        raise ValueError(f"needs the columns of a table, and its features have the shape {tuple(shape)}")
    return shape.cardinalities if isinstance(shape, TableShape) else (0,) * shape[0]


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
