"""What a world's clock offers: moments of an instant, timers, and what happens later."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol


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


class Due(Protocol):
    """What ``World.schedule`` takes: an object that something happens to later, and that needs no other timer.

    The world calls ``then`` with it when the time has come, unless it was told to cancel it. ``due`` says whether it is
    still to happen; the world alone sets it.
    """

    due: bool

    @property
    def then(self) -> Callable[[Any], object]:
        """What to call."""
