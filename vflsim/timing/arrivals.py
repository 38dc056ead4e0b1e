"""Streams of activations, and the arrivals that a client uses."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Annotated, Any, Literal, Self, TypeAlias, final, get_args

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from vflsim.errors import RunError
from vflsim.streams import Uniforms, party_name
from vflsim.timing.delays import Exponential
from vflsim.timing.floats import Floats
from vflsim.timing.sampler import Sampler
from vflsim.vocabulary import Part, PerSecond, PositivePerSecond, PositiveSeconds, Seconds, Shorthand
from vflsim.vocabulary.quantities import SHORTEST, Period

Block: TypeAlias = tuple[Floats, Floats]
"""Some arrivals in order: times (s since the start) and the gaps drawn for them (s; NaN: not drawn), both (n,)."""


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """Arrival ``index`` of an activation process: its time (s since the start), and the gap drawn for it (s)."""

    time: float
    index: int
    drawn: float


class ActivationProcess:
    """The arrivals of one party, independent of its work. Each is given out at most once.

    ``arrivals`` yields blocks, (times, drawn) with at least one arrival each: ascending seconds since the start, and
    the gaps that were drawn for them (NaN: not drawn), both (n,) of float64. ``queue``: arrivals that find the client
    busy wait for it; otherwise they are lost.

    Example::

        times = np.array([1.0, 2.5])
        process = ActivationProcess(iter([(times, np.array([1.0, 1.5]))]), queue=False)
        process.next(now=1.5).time  # 2.5
    """

    def __init__(self, arrivals: Iterator[Block], *, queue: bool) -> None:
        self.arrivals, self.queue = arrivals, queue
        self._first = 0  # index of the first arrival in the block at hand
        self._place = 0  # of the first one not yet passed
        self._times: list[float] = []
        self._drawn: list[float] = []
        self._returned: list[Arrival] = []  # a heap

    def next(self, now: float) -> Arrival | None:
        """Use up and give the next activation for a client that is free since ``now``; None if there are no more.

        skip: the first arrival strictly after ``now`` (or at 0 where ``now`` is 0);
        earlier ones are lost. queue: the oldest arrival not used up; if its time has passed, the client need not wait.
        """
        if not self.queue:
            self._pass(now)
        if self._returned:
            return heappop(self._returned)
        while self._place == len(self._times):
            if not self._fetch():
                return None
        place, self._place = self._place, self._place + 1
        return Arrival(self._times[place], self._first + place, self._drawn[place])

    def put_back(self, activation: Arrival) -> None:
        """Take back an activation whose wait was abandoned: ``next`` considers it again, before those after it."""
        heappush(self._returned, activation)

    def _pass(self, now: float) -> None:
        """Discard the arrivals that found the client busy, block by block, which makes long steps cheap."""
        if now > 0:
            while self._returned and self._returned[0].time <= now:
                heappop(self._returned)
        while True:
            self._place = max(self._place, bisect_right(self._times, now) if now > 0 else 0)
            if self._place < len(self._times) or not self._fetch():
                return

    def _fetch(self) -> bool:
        """Fetch the next block of arrivals, if there is one."""
        block = next(self.arrivals, None)
        if block is None:
            return False
        self._first += len(self._times)
        self._place, self._times, self._drawn = 0, block[0].tolist(), block[1].tolist()
        return True


def renewals(gaps: Sampler) -> Iterator[Block]:
    """Give arrivals at the sums of draws 0..k, added in this order."""
    last = 0.0
    for number in count():
        drawn = gaps.blocks(number, 1)
        times = np.add.accumulate(np.concatenate(([last], drawn)))[1:]
        last = float(times[-1])
        yield times, drawn


REJECTED_IN_A_ROW = 10_000_000
"""Candidates in a row without an arrival, after which thinning fails: the highest rate is too far above the others."""


class Rate(Part, ABC):
    """The expected number of arrivals per second, as a function of time."""

    @abstractmethod
    def highest(self) -> float:
        """Give the highest rate at any time, in arrivals per second."""

    @abstractmethod
    def at(self, t: Floats) -> Floats:
        """Give the rate at times ``t`` ≥ 0, elementwise."""

    def ends(self) -> float:
        """Give the time (s) from which the rate is 0 for ever; inf if there is none."""
        return math.inf

    @property
    def cycle_s(self) -> float:
        """The time (s) after which the rate repeats; 0 if it does not."""
        return 0.0

    @model_validator(mode="after")
    def _must_be_possible(self) -> Self:
        if not SHORTEST <= 1 / (self.highest() or math.inf) < 1e300:
            allowed = f"allowed: above 1e-300 /s and at most {1 / SHORTEST:g} /s"
            raise ValueError(f"a highest rate of {self.highest():g} /s; {allowed}")
        return self


@final
class RateSteps(Rate):
    """A rate that stays the same from one step to the next.

    Example: ``{kind: steps, steps: [[0 s, 2 /s], [30 s, 0.5 /s]], period: 60 s}``
    """

    kind: Literal["steps"] = "steps"
    steps: Annotated[tuple[tuple[Seconds, PerSecond], ...], Field(min_length=1)]
    """From when on which rate; from 0 s on."""
    period: Period | None = None
    """The steps repeat after this long; without it the last rate lasts for ever."""

    @model_validator(mode="after")
    def _times_must_ascend(self) -> Self:
        times = [time for time, _ in self.steps]
        ends = [*times[1:], math.inf if self.period is None else self.period]
        if times[0] != 0 or any(a >= b for a, b in zip(times, ends, strict=True)):
            raise ValueError("the times of the steps do not ascend from 0 s (to the period); allowed: 0 s first")
        return self

    @override
    def highest(self) -> float:
        return max(rate for _, rate in self.steps)

    @override
    def at(self, t: Floats) -> Floats:
        times, rates = np.array(self.steps).T
        within = t if self.period is None else np.mod(t, self.period)
        at_times: Floats = rates[np.searchsorted(times, within, side="right") - 1]
        return at_times

    @property
    @override
    def cycle_s(self) -> float:
        return self.period or 0.0

    @override
    def ends(self) -> float:
        last, rate = self.steps[-1]
        return last if self.period is None and rate == 0 else math.inf


@final
class Sinusoid(Rate):
    """mean + amplitude · sin(2π t / period).

    Example: ``{kind: sinusoid, mean: 2 /s, amplitude: 1 /s, period: 24 h}``
    """

    kind: Literal["sinusoid"] = "sinusoid"
    mean: PositivePerSecond
    """The mean rate, in arrivals per second."""
    amplitude: PerSecond
    """How far the rate rises above its mean and falls below it; at most the mean."""
    period: PositiveSeconds
    """The time of one oscillation."""

    @model_validator(mode="after")
    def _never_below_zero(self) -> Self:
        if self.amplitude > self.mean:
            raise ValueError(
                f"amplitude = {self.amplitude:g} /s would make the rate negative; allowed: up to the mean, "
                f"{self.mean:g} /s"
            )
        return self

    @property
    @override
    def cycle_s(self) -> float:
        return self.period

    @override
    def highest(self) -> float:
        return self.mean + self.amplitude

    @override
    def at(self, t: Floats) -> Floats:
        return self.mean + self.amplitude * np.sin(np.mod(t, self.period) * (2 * math.pi / self.period))


def thinned(rate: Rate, seed: int, party: int) -> Iterator[Block]:
    """Give Poisson arrivals at a varying rate, by thinning (Lewis and Shedler, 1979).

    Candidates come at the highest rate (stream ``activation``); each is an arrival with probability rate ÷ highest rate
    at its time (stream ``activation.accept``). Ends where the rate is 0 for ever. Raises RunError after
    ``REJECTED_IN_A_ROW`` candidates without an arrival.
    """
    highest, ends = rate.highest(), rate.ends()
    accepting = Uniforms(seed, party, "activation.accept")
    last, rejected = 0.0, 0
    candidates = renewals(Sampler(Exponential(mean=1 / highest), seed, party, "activation"))
    for number, (times, _) in zip(count(), candidates, strict=False):
        arrivals = times[accepting.block(number) * highest < rate.at(times)]
        rejected = 0 if len(arrivals) else rejected + len(times)
        if len(arrivals):
            yield arrivals, np.diff(arrivals, prepend=last)
            last = float(arrivals[-1])
        elif rejected >= REJECTED_IN_A_ROW:
            raise RunError(
                f"{rejected:,} candidates in a row up to {times[-1]:.6g} s were no activation of {party_name(party)}",
                allowed="rates within a few orders of magnitude of each other",
                remedy="raise the low rates, or lower the highest",
            )
        if times[-1] >= ends:
            return


def _steps_from_list(value: Any) -> Any:
    """Expand a list of steps to a rate."""
    return {"kind": "steps", "steps": value} if isinstance(value, list | tuple) else value


RateKind: TypeAlias = RateSteps | Sinusoid
RATES: tuple[type[Part], ...] = get_args(RateKind)
"""Every kind of rate."""

AnyRate = Annotated[
    RateKind,
    Field(discriminator="kind"),
    Shorthand(_steps_from_list, {"type": "array", "description": "steps: a list of [time, rate]"}),
]
"""A field that takes any kind of rate, or a list of steps for a piecewise-constant one."""
