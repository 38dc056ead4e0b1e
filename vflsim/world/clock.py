"""What a world's clock offers: moments of an instant, timers, and what happens later."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class Moment(IntEnum):
    """The order of things that happen at the same instant."""

    RESUME = 0  # a coroutine whose signal was set continues
    EVENT = 1  # delays end, messages arrive
    TIMEOUT = 2  # a message beats a timeout
    COLLECT = 3  # receives resolve in (arrival time, party) order, independent of the order of arrival events
    SHARE = 4  # after all changes of the instant: fair links are solved anew
    OUTAGE = 5  # parties go down and come up: an activity that ends at that very instant has ended before
    OBSERVE = 6  # evaluation and stop rules see the instant as it ended


class Timer(Protocol):
    """A cancellable scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback, unless it has been called."""
