"""When a client may begin its next step: at once, or when its activation process says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeAlias, final, get_args

from pydantic import Field, model_validator

from vflsim.timing.delays import Exponential
from vflsim.timing.sampler import Sampler
from vflsim.vocabulary import Part, PositivePerSecond, Shorthand, kind_from_text


@dataclass(frozen=True, slots=True)
class Activation:
    """Arrival ``index`` of an activation process: its time (s since the start), and the gap drawn for it (s)."""

    time: float
    index: int
    drawn: float


@final
class Immediate(Part):
    """The client begins as soon as it is free."""

    kind: Literal["immediate"] = "immediate"

    def process(self, seed: int, party: int) -> None:
        """Give None: there is nothing to wait for."""
        return None


@final
class Poisson(Part):
    """Activations at independent exponential gaps, whatever the client does meanwhile (VAFL Sec. 2.3, rule 2)."""

    kind: Literal["poisson"] = "poisson"
    rate: PositivePerSecond
    """Activations per second."""
    busy: Literal["skip", "queue"] = "skip"
    """Activations that find the client busy are lost (skip), or wait for it (queue)."""

    @model_validator(mode="after")
    def _gap_must_be_possible(self) -> Self:
        if not 0 < 1 / self.rate < 1e300:
            raise ValueError(
                f"a rate of {self.rate:g} /s leaves no finite gap between activations; allowed: above 1e-300 /s"
            )
        return self

    def gap(self) -> Exponential:
        """Give the distribution of the time between two activations."""
        return Exponential(mean=1 / self.rate)

    def process(self, seed: int, party: int) -> ActivationProcess:
        """Give the arrivals of one party, from time 0 on."""
        return ActivationProcess(Sampler(self.gap(), seed, party, "activation"), queue=self.busy == "queue")


class ActivationProcess:
    """The arrivals of one party: arrival k comes at the sum of draws 0..k, a function of (seed, party) alone.

    Every arrival is given out at most once.
    """

    def __init__(self, gaps: Sampler, *, queue: bool) -> None:
        self._gaps = gaps
        self._queue = queue
        self._upcoming = self._arrival(0, after=0.0)

    def next(self, now: float) -> Activation:
        """Use up and give the next activation for a client that is free since ``now``.

        skip: the first arrival strictly after ``now``, earlier ones are lost. queue: the oldest arrival not used up;
        if its time has passed, the client need not wait.
        """
        while not self._queue and self._upcoming.time <= now:
            self._advance()
        activation = self._upcoming
        self._advance()
        return activation

    def put_back(self, activation: Activation) -> None:
        """Take back an activation whose wait was abandoned: ``next`` considers it, and those after it, again."""
        self._upcoming = activation

    def _advance(self) -> None:
        self._upcoming = self._arrival(self._upcoming.index + 1, after=self._upcoming.time)

    def _arrival(self, index: int, after: float) -> Activation:
        drawn = self._gaps.draw(index)
        return Activation(after + drawn, index, drawn)


ActivationKind: TypeAlias = Immediate | Poisson
ACTIVATIONS: tuple[type[Part], ...] = get_args(ActivationKind)
"""Every kind of activation."""

AnyActivation = Annotated[
    ActivationKind, Field(discriminator="kind"), Shorthand(kind_from_text, {"const": "immediate"})
]
"""A field that takes any kind of activation, or ``immediate``."""
