"""Rates of activation that change over time, and their arrivals by thinning."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any, Literal, Self, TypeAlias, final, get_args

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from vflsim.errors import RunError
from vflsim.streams import Uniforms, party_name
from vflsim.timing.arrivals import Block, renewals
from vflsim.timing.delays import Exponential
from vflsim.timing.floats import Floats
from vflsim.timing.sampler import Sampler
from vflsim.vocabulary import Part, PerSecond, PositivePerSecond, PositiveSeconds, Seconds, Shorthand
from vflsim.vocabulary.quantities import SHORTEST, Period

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
        found: Floats = rates[np.searchsorted(times, within, side="right") - 1]
        return found

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
