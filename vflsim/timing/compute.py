"""Compute times: sampled from a delay, or computed from the cost of an operation, such as its FLOPs.

To add a kind: a final class like ``Flops``, and its name in ``ComputeKind``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Annotated, ClassVar, Literal, Protocol, Self, TypeAlias, final, get_args

from pydantic import Field, model_validator
from typing_extensions import override

from vflsim.errors import RunError
from vflsim.timing.delays import QUANTITY, AnyDelay, Constant, Delay, DelayKind, Uniform
from vflsim.timing.sampler import Sampler
from vflsim.vocabulary import FlopsPerSecond, Part, Seconds
from vflsim.vocabulary.imported import OrModule, blaming
from vflsim.vocabulary.trial import Trial, is_any, is_number, type_of


class Costed(Protocol):
    """What has a cost: an operation of the learning plane."""

    @property
    def kind(self) -> str:
        """Such as ``embed``, ``client_step``, ``server_step``."""

    @property
    def rows(self) -> int:
        """The rows that it works on."""

    @property
    def units(self) -> float:
        """Its size in mini-batches."""

    @property
    def seconds(self) -> float | None:
        """What it takes by a table, whatever the compute model says; None if the compute model decides."""

    def flops(self) -> float:
        """Count its floating-point operations."""


@dataclass(frozen=True, slots=True)
class OperationCost:
    """What a compute model sees of an operation: no values, and only what is known before it runs.

    ``kind`` is such as ``embed``, ``client_step`` or ``server_step``; ``rows`` are those that it works on; ``units`` is
    its size in mini-batches.

    Example: ``seconds = cost.flops() / self.rate + cost.rows * self.a_row``
    """

    kind: str
    rows: int
    units: float
    count: Callable[[], float] = field(repr=False)
    seconds: None = field(default=None, repr=False, compare=False)

    def flops(self) -> float:
        """Count the floating-point operations of the real operation: its matrix products and convolutions."""
        return self.count()


EXACTLY_ONCE = Constant(value=1.0)
"""The law of the draw where nothing is random: it is always 1."""
_LEVEL = Uniform(low=0.0, high=1.0)


class ComputeModel(Part, ABC):
    """A model of the durations of operations, from their costs and one draw each.

    Example of a class of your own, for a device that needs some time to begin, and some for each row that it reads. A
    scenario names it by ``compute: {kind: module, path: "mine:Roofline", rate: 2 GFLOPS, a_row: 1 us, begin: 50 us}``::

        class Roofline(ComputeModel):
            kind: Literal["roofline"] = "roofline"
            rate: FlopsPerSecond
            a_row: Seconds
            begin: Seconds

            def seconds(self, cost: OperationCost, draw: float) -> float:
                return self.begin + max(cost.flops() / self.rate, cost.rows * self.a_row)
    """

    kind: str
    """The name of this kind, as scenarios write it."""
    proportional: ClassVar[bool] = False
    """Whether seconds are proportional to the draw.

    Closed forms and the vectorised path require this of random draws.
    """

    def law(self) -> Delay:
        """Return the law of the draw for each operation; by default it is always 1."""
        return EXACTLY_ONCE

    @abstractmethod
    def seconds(self, cost: OperationCost, draw: float) -> float:
        """Return how long an operation takes, in seconds, at least 0: a function of its cost and its draw alone."""

    def _contract(self, trial: Trial) -> None:
        drawn_law, allowed = self.law(), "the same for one cost and one draw: let `law` say what is random"
        trial.must(
            isinstance(drawn_law, Delay),
            f"{trial.name}.law returned {type_of(drawn_law)}",
            "a Delay, such as a key",
            "law",
        )
        trial.fact("proportional", is_any(bool), "True or False")
        draws = [Sampler(drawn_law, 0, 1, "compute.trial").draw(index) for index in range(_DRAWS)]
        for kind, rows, units, flops, draw in product(_KINDS, (0, 64, 10_000), (0.0, 1.0, 2.5), (0.0, 1e12), draws):
            cost = OperationCost(kind, rows, units, partial(float, flops))
            where, what = f"for {cost} and a draw of {draw:g}", f"{trial.name}.seconds is"
            seconds = trial.ask("seconds", cost, draw, where=where, repeats=allowed)
            fits = is_number(least=0)(seconds)
            trial.must(fits, f"{what} {seconds!r} {where}", "a number, finite and at least 0", "seconds")
            if self.proportional:
                one = self.seconds(cost, 1.0)
                what = f"{what} {seconds:g} for a draw of {draw:g}, and {one:g} for a draw of 1"
                follows = abs(seconds - draw * one) <= 1e-9 * seconds
                trial.must(follows, what, "proportional to the draw, or proportional = False", "proportional")


_KINDS, _DRAWS = ("embed", "client_step", "server_step", "evaluate", "decode"), 2


@final
class Flops(ComputeModel):
    """A fixed time (none by default) and FLOPs of the real operation ÷ the device's speed, the sum times the jitter.

    Example: ``{kind: flops, rate: 2 GFLOPS, fixed: 200 us, jitter: {kind: lognormal, sigma: 0.2, median: 1}}``
    """

    kind: Literal["flops"] = "flops"
    proportional: ClassVar[bool] = True
    rate: FlopsPerSecond
    """Speed of the device."""
    jitter: AnyDelay | None = None
    """A random factor per operation: any kind of delay without its unit, e.g. lognormal with median 1."""
    fixed: Seconds = 0.0
    """What every operation takes, however small it is."""

    @override
    def law(self) -> Delay:
        return self.jitter or EXACTLY_ONCE

    @override
    def seconds(self, cost: OperationCost, draw: float) -> float:
        flops = cost.flops() / self.rate
        return (self.fixed + flops) * draw if self.fixed else flops * draw


_OneCompute = Annotated[DelayKind | Flops, Field(discriminator="kind"), QUANTITY]


@final
class ByOperation(ComputeModel):
    """A way of computing for each kind of operation, and one for all others.

    An operation's draw is a quantile level, uniform between 0 and 1, of the law of its kind.

    Example: ``{kind: by_operation, operations: {embed: 2 ms, client_step: {kind: exponential, mean: 5 ms}}, others:
    {kind: flops, rate: 2 GFLOPS}}``
    """

    kind: Literal["by_operation"] = "by_operation"
    operations: dict[str, _OneCompute]
    """By the operation's name in the events, without ``compute.``: ``embed``, ``client_step``, ``server_step``, …"""
    others: _OneCompute
    """How operations take time that are not named above."""

    @model_validator(mode="after")
    def _draws_by_index(self) -> Self:
        for name, compute in (*self.operations.items(), ("others", self.others)):
            if law(compute).in_time:
                raise ValueError(
                    f"the {law(compute).kind} law of {name} depends on the instant; allowed: laws that do not"
                )
        return self

    def __hash__(self) -> int:
        return hash((frozenset(self.operations.items()), self.others))

    def of(self, kind: str) -> DelayKind | Flops:
        """Return how operations of a kind take time."""
        return self.operations.get(kind, self.others)

    @override
    def law(self) -> Delay:
        every = (*self.operations.values(), self.others)
        return EXACTLY_ONCE if all(isinstance(law(each), Constant) for each in every) else _LEVEL

    @override
    def seconds(self, cost: OperationCost, draw: float) -> float:
        compute = self.of(cost.kind)
        kind_law = law(compute)
        drawn = kind_law.value if isinstance(kind_law, Constant) else float(kind_law.quantile(draw))
        return duration(compute, drawn, cost)


ComputeKind: TypeAlias = DelayKind | Flops | ByOperation
AnyCompute = Annotated[ComputeKind, Field(discriminator="kind"), OrModule(Delay, ComputeModel), QUANTITY]
"""A field that takes any way of computing, or a plain quantity for a constant time."""

COMPUTES: tuple[type[Part], ...] = get_args(ComputeKind)
"""Every kind of compute model."""


def law(compute: Delay | ComputeModel) -> Delay:
    """Return the law of the draw per operation, which is the duration itself or the input of the compute model."""
    return compute.law() if isinstance(compute, ComputeModel) else compute


def duration(compute: Delay | ComputeModel, draw: float, operation: Costed) -> float:
    """Give the seconds that an operation takes, given its draw from ``law(compute)``.

    A sampled time is multiplied by the operation's size in mini-batches. Times from a table are what they are. Raises
    ``RunError`` for what goes wrong in a compute model of the user's.
    """
    if operation.seconds is not None:
        return operation.seconds
    if not isinstance(compute, ComputeModel):
        return draw * operation.units
    cost = OperationCost(operation.kind, operation.rows, operation.units, operation.flops)
    if isinstance(compute, Flops | ByOperation):
        return compute.seconds(cost, draw)
    name = type(compute).__name__
    with blaming(f"the compute model {name}", f" for {cost}"):
        seconds = compute.seconds(cost, 1.0) * draw if compute.proportional else compute.seconds(cost, draw)
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        what = f"{name}.seconds is {seconds!r} for {cost} and a draw of {draw:g}"
        raise RunError(what, allowed="a number, finite and at least 0", remedy="mend 'seconds' of the class")
    return seconds
