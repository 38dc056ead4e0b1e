"""Raised when the vectorised path cannot decide an ordering; the run is repeated event by event."""

from __future__ import annotations

from vflsim.errors import RunError


class UndecidedError(RunError):
    """Events fall on the same instant, and the run depends on their order, which only the event queue determines.

    This is rare for continuous delays. The event path executes such a run.
    """


def undecided(what: str, round_: int, now: float) -> UndecidedError:
    """Make the error for ``what`` happening in a round at a time (seconds)."""
    return UndecidedError(
        f"{what}: only the event path can decide the order",
        where=f"round {round_} at {now:.6g} s",
        remedy="leave out --path vectorised",
    )
