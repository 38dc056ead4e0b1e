"""What models say before PyTorch is there: shapes of tables, and the names of layers."""

from __future__ import annotations

from collections.abc import Sequence
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
