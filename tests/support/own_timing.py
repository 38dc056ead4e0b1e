"""Availabilities, activations and capacities of the tests' own, as users write them: some work, and some break."""

from collections.abc import Iterator
from itertools import count
from typing import Any, Literal

import numpy as np

from vflsim.protocol import (
    Activation,
    ActivationProcess,
    Availability,
    BitsPerSecond,
    Capacity,
    Flat,
    Interrupted,
    PositiveSeconds,
    Profile,
    Seconds,
    StepProfile,
    generator,
)

Block = tuple[np.ndarray, np.ndarray]


class Breaks(Availability):
    """Down for some time of every period; the k-th client somewhat later."""

    kind: Literal["breaks"] = "breaks"
    first: Seconds
    lasts: PositiveSeconds
    every: PositiveSeconds
    interrupted: Interrupted = "resumed"

    def profile(self, seed: int, party: int) -> Profile:
        return StepProfile([0.0, self.first, self.first + self.lasts], [1.0, 0.0, 1.0], self.every)

    @property
    def cycle_s(self) -> float:
        return self.every


class Drawn(Breaks):
    kind: Literal["drawn"] = "drawn"  # type: ignore[assignment]

    def profile(self, seed: int, party: int) -> Profile:
        first = generator(seed, party, "availability").uniform(0.1, 0.9) * (self.every - self.lasts)
        return StepProfile([0.0, first, first + self.lasts], [1.0, 0.0, 1.0], self.every)


class Unsaid(Availability):
    kind: Literal["unsaid"] = "unsaid"

    def profile(self, seed: int, party: int) -> Profile:
        return Flat(1.0)


class Half(Breaks):
    def profile(self, seed: int, party: int) -> Profile:
        return StepProfile([0.0, 1.0], [1.0, 0.5])


class Never(Breaks):
    def profile(self, seed: int, party: int) -> Profile:
        return Flat(0.0)


class Numbers(Breaks):
    def profile(self, seed: int, party: int) -> Any:
        return [1.0, 0.0]


class Stands(Profile):
    def value(self, t: float) -> float:
        return 1.0

    def next_change(self, t: float) -> float:
        return t


class Standing(Breaks):
    def profile(self, seed: int, party: int) -> Profile:
        return Stands()


class Global(Breaks):
    def profile(self, seed: int, party: int) -> Profile:
        start = float(np.random.rand())
        return StepProfile([0.0, start, start + 1], [1.0, 0.0, 1.0])


ASKED = count(2)


class Earlier(Breaks):
    """Begins its outage earlier whenever it is asked, so that all values at the first one's changes agree."""

    def profile(self, seed: int, party: int) -> Profile:
        start = 1 / next(ASKED)
        return StepProfile([0.0, start, start + 1], [1.0, 0.0, 1.0])


class Raising(Breaks):
    def profile(self, seed: int, party: int) -> Profile:
        raise LookupError("no such day")


class Endless(Breaks):
    @property
    def cycle_s(self) -> float:
        return float("inf")


class Ticks(Activation):
    """At every multiple of a time."""

    kind: Literal["ticks"] = "ticks"
    every: PositiveSeconds

    def process(self, seed: int, party: int) -> ActivationProcess:
        return ActivationProcess(self.blocks(seed, party), queue=True)

    def blocks(self, seed: int, party: int) -> Iterator[Block]:
        turn = 0
        while True:
            yield np.array([turn * self.every]), np.array([np.nan])
            turn += 1


class DrawnTicks(Ticks):
    kind: Literal["drawn_ticks"] = "drawn_ticks"  # type: ignore[assignment]

    def blocks(self, seed: int, party: int) -> Iterator[Block]:
        draw, start = generator(seed, party, "activation"), 0.0
        while True:
            gaps = draw.exponential(self.every, 4)
            times = start + np.cumsum(gaps)
            start = times[-1]
            yield times, gaps


class Backwards(Ticks):
    def blocks(self, seed: int, party: int) -> Iterator[Block]:
        yield np.array([2.0, 1.0]), np.array([np.nan, np.nan])


class Empty(Ticks):
    def blocks(self, seed: int, party: int) -> Iterator[Block]:
        while True:
            yield np.empty(0), np.empty(0)


class Lists(Ticks):
    def blocks(self, seed: int, party: int) -> Iterator[Any]:
        yield [1.0], [1.0]


class NoProcess(Ticks):
    def process(self, seed: int, party: int) -> Any:
        return iter([1.0])


class GlobalTicks(Ticks):
    def blocks(self, seed: int, party: int) -> Iterator[Block]:
        yield np.sort(np.random.rand(3)), np.full(3, np.nan)


class TooLate(Ticks):
    @property
    def last(self) -> float:
        return 1e-9


class Fading(Capacity):
    """A rate, and half of it in turn."""

    kind: Literal["fading"] = "fading"
    rate: BitsPerSecond
    every: PositiveSeconds

    def profile(self) -> StepProfile | Flat:
        return StepProfile([0.0, self.every], [self.rate, self.rate / 2], 2 * self.every)


class Dry(Fading):
    def profile(self) -> StepProfile | Flat:
        return Flat(0.0)


class Rate(Fading):
    def profile(self) -> Any:
        return self.rate


class GlobalRate(Fading):
    def profile(self) -> StepProfile | Flat:
        return Flat(1.0 + float(np.random.rand()))


class Steps(Fading):
    def profile(self) -> StepProfile | Flat:
        return StepProfile([1.0], [self.rate])
