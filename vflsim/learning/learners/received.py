"""What operations read of a message."""

from __future__ import annotations

from typing import Any, Protocol


class Received(Protocol):
    """The parts of a message that operations read: sender, batch and tensor.

    Example::

        def total(message: Received) -> float:
            return float(message.value.value.sum())
    """

    @property
    def sender(self) -> int:
        """The party's number."""

    @property
    def batch(self) -> Any:
        """The ``Batch``, or None."""

    @property
    def value(self) -> Any:
        """The ``Handle`` of its only tensor, or None."""
