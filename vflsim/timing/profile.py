"""Piecewise-constant functions of time: the rate of a link, or whether a party is up.

A profile gives a value ≥ 0 (inf allowed) at every time t ≥ 0, is continuous from the right, and knows its next
possible change. The integral over a stretch of time, and the time at which an amount is through, follow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, final

from typing_extensions import override

from vflsim.vocabulary.trial import REPEATS, Trial

TRACE = 1e-12
"""The negligible share of an amount that rounding may leave after its last bit has been transferred."""
NEVER_AFTER = 1_000_000
"""Changes in a row at value 0, after which a profile counts as 0 for ever."""

Interrupted: TypeAlias = Literal["lost", "resumed"]
"""The fate of work and messages in an outage: gone for good, or paused.

Example: ``interrupted: Interrupted = "lost"``.
"""


class Profile(ABC):
    """A piecewise-constant function of time; subclasses define its value and its next change.

    Example::

        class Night(Profile):
            highest = 1.0

            def value(self, t: float) -> float:
                return 1.0 if t % 86_400 < 43_200 else 0.25

            def next_change(self, t: float) -> float:
                return (t // 43_200 + 1) * 43_200


        Night().piece(50_000.0)  # (0.25, 86400.0)
    """

    @abstractmethod
    def value(self, t: float) -> float:
        """Give the value at time ``t`` ≥ 0 (at a change: the value from there on)."""

    @abstractmethod
    def next_change(self, t: float) -> float:
        """Give the first time after ``t`` at which the value may change (inf: never again)."""

    def dry_from(self) -> float:
        """Give the time from which it is 0 for ever; inf if none is known."""
        return math.inf

    @property
    def cycle_s(self) -> float:
        """The time (s) after which it repeats; 0 if it is constant, or does not repeat."""
        return 0.0

    def piece(self, t: float) -> tuple[float, float]:
        """Give the value at ``t``, and until when it holds at least."""
        return self.value(t), self.next_change(t)

    def finish(self, start: float, amount: float) -> float:
        """Give the first time ≥ ``start`` by which the integral from ``start`` reaches ``amount``; inf if never.

        At value inf any amount is through at once; an amount of 0 is at the first time with a value above 0.
        """
        t, remainder, idle, trace = start, amount, 0, TRACE * amount
        while t < math.inf and idle < NEVER_AFTER:
            value, until = self.piece(t)
            if value > 0:
                carried = value * (until - t)
                if carried >= remainder - trace:
                    return min(t + remainder / value, until)
                remainder -= carried
                idle = 0
            else:
                idle += 1
            t = until
        return math.inf

    def first_zero(self, start: float, end: float) -> float:
        """Give the first time from ``start`` on, and before ``end``, at which the value is 0; inf if there is none."""
        t = start
        while t < end:
            value, until = self.piece(t)
            if not value > 0:
                return t
            t = until
        return math.inf

    def amount(self, start: float, end: float) -> float:
        """Give the integral from ``start`` to ``end``: 0 if nothing lies between them, inf where the value is inf."""
        t, total = start, 0.0
        while t < end:
            value, until = self.piece(t)
            until = min(until, end)
            if value > 0:
                total += value * (until - t)
            t = until
        return total


class Pieces(Profile):
    """A profile that is defined by its pieces."""

    @override
    def value(self, t: float) -> float:
        return self.piece(t)[0]

    @override
    def next_change(self, t: float) -> float:
        return self.piece(t)[1]

    @override
    @abstractmethod
    def piece(self, t: float) -> tuple[float, float]:
        """Give the value at ``t``, and until when it holds at least."""


@final
class Flat(Profile):
    """The same value for ever.

    Example::

        Flat(2.0).finish(start=1.0, amount=6.0)  # 4.0
    """

    def __init__(self, value: float) -> None:
        _must_be_possible(value)
        self._value = self.highest = value
        """The highest value at any time."""

    @override
    def value(self, t: float) -> float:
        return self._value

    @override
    def dry_from(self) -> float:
        return math.inf if self._value > 0 else 0.0

    @override
    def next_change(self, t: float) -> float:
        return math.inf

    @override
    def finish(self, start: float, amount: float) -> float:
        return start + amount / self._value if self._value > 0 else math.inf

    def __repr__(self) -> str:
        return f"Flat({self._value!r})"


@final
class StepProfile(Pieces):
    """Value ``values[k]`` from ``times[k]`` on: for ever after the last, or repeating every ``period`` seconds.

    The first time is 0; repetition n begins at ``n * period``. Raises ValueError for times that do not ascend from 0, a
    period that does not lie after the last, negative or NaN values, and different numbers of times and values.

    Example::

        StepProfile([0.0, 10.0], [5.0, 1.0], period=20.0).value(25.0)  # 5.0
    """

    def __init__(self, times: Sequence[float], values: Sequence[float], period: float | None = None) -> None:
        if not times or len(times) != len(values):
            raise ValueError(f"{len(times)} times and {len(values)} values; allowed: as many of each, at least one")
        if times[0] != 0:
            raise ValueError(f"the first time is {times[0]!r}; allowed: 0")
        end = math.inf if period is None else period
        self._times, self._values = [0.0], [float(values[0])]
        for before, time, value in zip(times, [*times[1:], end], [*values[1:], values[0]], strict=True):
            if not before < time:
                raise ValueError(f"time {time!r} follows {before!r}; allowed: times (and a period) that ascend")
            _must_be_possible(value)
            if time < end and value != self._values[-1]:  # drop steps without a change
                self._times.append(float(time))
                self._values.append(float(value))
        if period is not None and len(self._times) == 1:
            end = math.inf
        elif period == math.inf:
            raise ValueError("a period of inf; allowed: a finite one, or none")
        self._period = end
        self.highest = max(self._values)
        """The highest value at any time."""
        self._ends = [*self._times[1:], end]
        self._total = sum(v * (b - a) for v, a, b in zip(self._values, self._times, self._ends, strict=True) if v > 0)

    @property
    @override
    def cycle_s(self) -> float:
        return self._period if self._period < math.inf else 0.0

    @override
    def dry_from(self) -> float:
        return self._times[-1] if self._period == math.inf and self._values[-1] == 0 else math.inf

    @override
    def piece(self, t: float) -> tuple[float, float]:
        if self._period == math.inf:
            k = bisect_right(self._times, t) - 1
            return self._values[k], self._ends[k]
        turn = t // self._period
        if turn * self._period > t:  # the product was rounded up
            turn -= 1
        origin = turn * self._period
        k = bisect_right(self._times, t - origin) - 1
        while True:
            last = k + 1 == len(self._times)
            end = (turn + 1) * self._period if last else origin + self._ends[k]
            if t < end:
                return self._values[k], end
            k, turn, origin = (0, turn + 1, end) if last else (k + 1, turn, origin)  # the difference was rounded down

    @override
    def finish(self, start: float, amount: float) -> float:
        if 0 < self._total < math.inf and self._period < math.inf and amount > 2 * self._total:
            turns = math.floor(amount / self._total) - 1  # whole periods at once; the rest piece by piece
            return super().finish(start + turns * self._period, amount - turns * self._total)
        return super().finish(start, amount)

    @override
    def amount(self, start: float, end: float) -> float:
        if self._period < math.inf and end - start > 2 * self._period:
            turns = math.floor((end - start) / self._period) - 1
            return turns * self._total + super().amount(start + turns * self._period, end)
        return super().amount(start, end)

    def __repr__(self) -> str:
        return f"StepProfile({self._times!r}, {self._values!r}, period={self._period!r})"


@final
class _Lowest(Pieces):
    """The lowest of several profiles."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._profiles = tuple(profiles)

    @override
    def piece(self, t: float) -> tuple[float, float]:
        pieces = [profile.piece(t) for profile in self._profiles]
        zeros = [until for value, until in pieces if not value > 0]
        if zeros:  # while one of them is 0, the others do not matter
            return 0.0, max(zeros)
        return min(value for value, _ in pieces), min(until for _, until in pieces)


@final
class _Gated(Pieces):
    """A profile behind a gate."""

    def __init__(self, profile: Profile, gate: Profile) -> None:
        self._profile, self._gate = profile, gate

    @override
    def piece(self, t: float) -> tuple[float, float]:
        open_, until = self._gate.piece(t)
        if not open_ > 0:
            return 0.0, until
        value, change = self._profile.piece(t)
        return value, min(until, change) if value > 0 else change


def lowest(*profiles: Profile) -> Profile:
    """Give the lowest of the profiles at every time; inf without profiles. Flat ones are merged."""
    flat = min((profile.value(0.0) for profile in profiles if isinstance(profile, Flat)), default=math.inf)
    varying = list(dict.fromkeys(profile for profile in profiles if not isinstance(profile, Flat)))
    if not varying:
        return Flat(flat)
    if flat < math.inf:
        varying.append(Flat(flat))
    return varying[0] if len(varying) == 1 else _Lowest(varying)


def gated(profile: Profile, gate: Profile) -> Profile:
    """Give the profile where the gate is above 0, and 0 elsewhere."""
    if isinstance(gate, Flat):
        return profile if gate.value(0.0) > 0 else Flat(0.0)
    return _Gated(profile, gate)


def _must_be_possible(value: float) -> None:
    if not value >= 0:  # also refuses NaN
        raise ValueError(f"a value of {value!r}; allowed: at least 0")


_PIECES = 200


def tried_profile(
    trial: Trial, make: Callable[[], Profile], kinds: tuple[type, ...], allowed: str, where: str
) -> list[tuple[float, float, float]]:
    """Return beginning, value and end of the first pieces of the ``profile`` of a user's class.

    One is walked through, and another one in the other order; both have to be of these ``kinds``, and alike.
    """
    name, (first, again) = f"{trial.name}.profile", (make(), make())
    for profile in (first, again):
        trial.must(isinstance(profile, kinds), f"{name} returned a {type(profile).__name__}", allowed, "profile")
    t, pieces = 0.0, list[tuple[float, float, float]]()
    while t < math.inf and len(pieces) < _PIECES:
        value, until = first.piece(t)
        pieces.append((t, value, until))
        same = value == first.value(t) and until == first.next_change(t)
        trial.must(same, f"{name}: piece({t:.6g}) disagrees with value and next_change", "the same", "profile")
        what = f"{name}: the next change after {t!r} s is at {until!r} s"
        trial.must(until > t, what, "a later time, or inf", "profile")
        t = until
    for t, value, until in reversed(pieces):
        now, end = again.piece(t)
        what = f"{name} is {value:g} from {t:.6g} to {until:.6g} s, and {now:g} from {t:.6g} to {end:.6g} s"
        allowed = f"{REPEATS}; draw from generator(seed, party, …)"
        trial.must((now, end) == (value, until), f"{what} when it is asked again{where}", allowed, "profile")
    return pieces
