"""How many local steps a party takes in a round."""

from __future__ import annotations

from collections.abc import Callable

_ROUNDING = 1e-9
"""Measured times are differences of clock times: three steps of 2 ms still fit into 6 ms."""


class StepCounts:
    """The numbers of local steps of one party: ``given``, or as many as fit into ``seconds``, by its measured steps.

    A party that measures reads ``clock`` (seconds), and takes one step in its first round, at the start and after a
    crash. Given numbers read no clock.

    Example::

        counts = StepCounts(lambda: node.now, seconds=10.0)
        steps = counts.begin()  # 1
        ...  # the step takes 3 s
        counts.end()
        steps = counts.begin()  # 3
    """

    def __init__(self, clock: Callable[[], float], given: int | None = None, seconds: float | None = None) -> None:
        assert (given is None) != (seconds is None), "either a number, or the seconds to fill"
        self._clock, self._given, self._seconds = clock, given, seconds
        self._step = self._begun = 0.0
        self._steps = 1

    def begin(self) -> int:
        """Return the number of steps of a round that begin now: at least 1."""
        if self._given is not None:
            return self._given
        assert self._seconds is not None
        self._steps = max(1, int(self._seconds / self._step * (1 + _ROUNDING))) if self._step > 0 else 1
        self._begun = self._clock()
        return self._steps

    def end(self) -> None:
        """Note that the steps of the round have ended now."""
        if self._given is None:
            self._step = (self._clock() - self._begun) / self._steps
