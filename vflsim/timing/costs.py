"""What an operation of the learning plane costs, as compute models see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Costed(Protocol):
    """What has a cost: an operation of the learning plane."""

    @property
    def kind(self) -> str:
        """Such as ``embed``, ``client_step``, ``server_step``."""

    @property
    def rows(self) -> int:
        """The rows that it works on."""

    @property
    def units(self) -> float:
        """Its size in mini-batches."""

    def flops(self) -> float:
        """Count its floating-point operations."""


@dataclass(frozen=True, slots=True)
class OperationCost:
    """What a compute model sees of an operation: no values, and only what is known before it runs.

    ``kind`` is such as ``embed``, ``client_step`` or ``server_step``; ``rows`` are those that it works on; ``units`` is
    its size in mini-batches.

    Example: ``seconds = cost.flops() / self.rate + cost.rows * self.a_row``
    """

    kind: str
    rows: int
    units: float
    count: Callable[[], float] = field(repr=False)

    def flops(self) -> float:
        """Count the floating-point operations of the real operation: its matrix products and convolutions."""
        return self.count()
