"""How many local steps a party takes in a round."""

from __future__ import annotations

_ROUNDING = 1e-9
"""Measured times are differences of clock times: three steps of 2 ms still fit into 6 ms."""


class StepCounts:
    """The numbers of local steps of one party: ``given``, or as many as fit into ``seconds``, by its measured steps.

    A party that measures takes one step in its first round, at the start and after a crash.

    Example::

        counts = StepCounts(seconds=10.0)
        counts.next()  # 1
        counts.took(3.0, steps=1)
        counts.next()  # 3
    """

    def __init__(self, given: int | None = None, seconds: float | None = None) -> None:
        assert (given is None) != (seconds is None), "either a number, or the seconds to fill"
        self._given, self._seconds = given, seconds
        self._step = 0.0

    def next(self) -> int:
        """Return the number of steps of the next round: at least 1."""
        if self._given is not None:
            return self._given
        assert self._seconds is not None
        return max(1, int(self._seconds / self._step * (1 + _ROUNDING))) if self._step > 0 else 1

    def took(self, seconds: float, steps: int) -> None:
        """Note that ``steps`` steps took ``seconds`` in all."""
        self._step = seconds / steps
