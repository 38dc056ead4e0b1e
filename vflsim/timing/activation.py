"""Activations of clients: a client begins its next step at once, or at an arrival of its activation process."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from itertools import count, islice, pairwise
from typing import Annotated, Literal, Self, TypeAlias, final, get_args

import numpy as np
from pydantic import Field, PrivateAttr, model_validator
from typing_extensions import override

from vflsim.timing.arrivals import ActivationProcess, AnyRate, Block, renewals, thinned
from vflsim.timing.delays import Exponential
from vflsim.timing.readers import ascending, columns_of
from vflsim.timing.sampler import Sampler
from vflsim.vocabulary import Part, PositivePerSecond, Seconds, Shorthand, kind_from_text
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.quantities import SHORTEST, Period
from vflsim.vocabulary.trial import REPEATS, SEEDS_AND_PARTIES, Trial, is_number, type_of

Busy: TypeAlias = Literal["skip", "queue"]


@final
class Immediate(Part):
    """The client begins as soon as it is free.

    Example: ``{kind: immediate}``
    """

    kind: Literal["immediate"] = "immediate"

    def process(self, seed: int, party: int) -> None:
        """Return None, because the client never waits for an activation."""
        return None


class Activation(Part, ABC):
    """When a client may begin its next step: at the arrivals of a process, a function of (seed, party) alone.

    Example of a class of your own, in which a few activations follow each other closely. A scenario names it by
    ``activation: {kind: module, path: "mine:Bursts", size: 3}``::

        class Bursts(Activation):
            kind: Literal["bursts"] = "bursts"
            size: Count

            def process(self, seed: int, party: int) -> ActivationProcess:
                return ActivationProcess(self.blocks(generator(seed, party, "activation")), queue=False)

            def blocks(self, draw: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
                start = 0.0
                while True:
                    start += draw.exponential(1.0)
                    times = start + 1e-3 * np.arange(self.size)
                    start = times[-1]
                    yield times, np.full(self.size, np.nan)
    """

    kind: str
    """The name of this kind, as scenarios write it."""

    @abstractmethod
    def process(self, seed: int, party: int) -> ActivationProcess:
        """Return the arrivals of one party, from time 0 on."""

    @property
    def last(self) -> float:
        """The time of the last activation (s); inf if activations never end."""
        return math.inf

    @property
    def cycle_s(self) -> float:
        """The period (s) of its rate or of its times; 0 without a period."""
        return 0.0

    def _contract(self, trial: Trial) -> None:
        trial.fact("last", is_number(least=0, finite=False), "seconds, at least 0")
        trial.fact("cycle_s", is_number(least=0), "seconds, finite and at least 0")
        allowed = f"{REPEATS}; draw from generator(seed, party, …)"
        for seed, party in SEEDS_AND_PARTIES:
            call, where = partial(self._first, trial), f"for seed {seed} and party {party}"
            blocks = trial.ask("process", seed, party, where=where, call=call, repeats=allowed)
            times = [float(time) for block, _ in blocks for time in block]
            for early, late in pairwise(times):
                what = f"{trial.name}.process has an arrival at {late:.6g} s after one at {early:.6g} s"
                trial.must(late >= early, what, "in order", "process")
            if times:
                what = f"{trial.name}.process has arrivals from {times[0]:.6g} s to {times[-1]:.6g} s"
                fits = math.isfinite(times[-1]) and times[0] >= 0
                trial.must(fits, what, "finite times of at least 0 s", "process")
                what = f"{trial.name}.last is {self.last:.6g} s, and an arrival comes at {times[-1]:.6g} s"
                trial.must(times[-1] <= self.last, what, "when the last one comes, or inf", "last")

    def _first(self, trial: Trial, seed: int, party: int) -> list[Block]:
        """Return the first blocks of arrivals of a user's class."""
        process, name = self.process(seed, party), f"{trial.name}.process"
        known = isinstance(process, ActivationProcess)
        trial.must(known, f"{name} returned {type_of(process)}", "ActivationProcess(blocks, queue=…)", "process")
        blocks = list(islice(process.arrivals, _BLOCKS))
        for block in blocks:
            pair = isinstance(block, tuple) and [getattr(each, "ndim", 0) for each in block] == [1, 1]
            fits = pair and block[0].shape == block[1].shape and block[0].dtype == np.float64
            what, allowed = f"{name} has a block {block!r:.80}", "(times, drawn): two arrays (n,) of float64"
            trial.must(fits, what, allowed, "process")
            trial.must(len(block[0]), f"{name} has an empty block", "at least one arrival in each", "process")
        return blocks


_BLOCKS = 3


@final
class Poisson(Activation):
    """Activations at independent exponential gaps, independent of the client's work (VAFL Sec. 2.3, rule 2).

    Example: ``{kind: poisson, rate: 2 /s, busy: queue}``
    """

    kind: Literal["poisson"] = "poisson"
    rate: PositivePerSecond
    """Activations per second."""
    busy: Busy = "skip"
    """Activations that find the client busy are lost (skip), or wait for it (queue)."""

    @model_validator(mode="after")
    def _gap_must_be_possible(self) -> Self:
        if not SHORTEST <= 1 / self.rate < 1e300:
            raise ValueError(
                f"a rate of {self.rate:g} /s leaves no possible gap between activations; "
                f"allowed: above 1e-300 /s and at most {1 / SHORTEST:g} /s"
            )
        return self

    def gap(self) -> Exponential:
        """Give the distribution of the time between two activations."""
        return Exponential(mean=1 / self.rate)

    @override
    def process(self, seed: int, party: int) -> ActivationProcess:
        return ActivationProcess(renewals(Sampler(self.gap(), seed, party, "activation")), queue=self.busy == "queue")


@final
class VaryingPoisson(Activation):
    """Activations of a Poisson process whose rate changes over time, by thinning.

    Example: ``{kind: varying_poisson, rate: {kind: sinusoid, mean: 2 /s, amplitude: 1 /s, period: 24 h}, busy:
    queue}``
    """

    kind: Literal["varying_poisson"] = "varying_poisson"
    rate: AnyRate
    """Steps ``[[time, rate], …]``, a mapping of them with a period, or a sinusoid."""
    busy: Busy = "skip"
    """Activations that find the client busy are lost (skip), or wait for it (queue)."""

    @override
    def process(self, seed: int, party: int) -> ActivationProcess:
        return ActivationProcess(thinned(self.rate, seed, party), queue=self.busy == "queue")

    @property
    @override
    def cycle_s(self) -> float:
        return self.rate.cycle_s


@final
class Schedule(Activation):
    """Activations at given times, in the scenario or in a file of one number a line (CSV, NPY).

    Examples: ``{kind: schedule, times: [0 s, 5 s, 9 s], period: 10 s, busy: queue}``, ``{kind: schedule, file:
    activations.csv}``
    """

    kind: Literal["schedule"] = "schedule"
    times: Annotated[tuple[Seconds, ...], Field(min_length=1)] | None = None
    """Seconds since the start, ascending."""
    file: str | None = None
    """A file of such times, instead."""
    period: Period | None = None
    """The times repeat after this long; without it the client waits for ever after the last one."""
    busy: Busy = "skip"
    """Activations that find the client busy are lost (skip), or wait for it (queue)."""

    _times: tuple[float, ...] = PrivateAttr()

    @model_validator(mode="after")
    def _read(self) -> Self:
        if (self.times is None) == (self.file is None):
            raise ValueError("a schedule needs its times; allowed: exactly one of times and file")
        times = np.array(self.times) if self.file is None else columns_of(self.file, ("time",))[:, 0]
        ascending(times, self.file or "times")
        if self.period is not None and times[-1] >= self.period:
            raise ValueError(
                f"a period of {self.period:g} s ends before the last time, {times[-1]:g} s; allowed: above it"
            )
        self._times = tuple(times.tolist())
        return self

    @override
    def process(self, seed: int, party: int) -> ActivationProcess:
        return ActivationProcess(self._repeated(), queue=self.busy == "queue")

    @property
    @override
    def cycle_s(self) -> float:
        return self.period or 0.0

    @property
    @override
    def last(self) -> float:
        return self._times[-1] if self.period is None else math.inf

    def _repeated(self) -> Iterator[Block]:
        times = np.array(self._times)
        for turn in count():
            yield times + turn * (self.period or 0.0), np.full(len(times), math.nan)
            if self.period is None:
                return


ActivationKind: TypeAlias = Immediate | Poisson | VaryingPoisson | Schedule
ACTIVATIONS: tuple[type[Part], ...] = get_args(ActivationKind)
"""Every kind of activation."""

AnyActivation = Annotated[
    ActivationKind, Field(discriminator="kind"), OrModule(Activation), Shorthand(kind_from_text, {"const": "immediate"})
]
"""A field that takes any kind of activation, or ``immediate``."""
