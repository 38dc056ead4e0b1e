"""Compute times: sampled from a delay, or computed from the cost of an operation, such as its FLOPs.

To add a kind: a final class like ``Flops``, and its name in ``ComputeKind``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, TypeAlias, final, get_args

from pydantic import Field
from typing_extensions import override

from vflsim.errors import RunError
from vflsim.timing.costs import Costed, OperationCost
from vflsim.timing.delays import QUANTITY, AnyDelay, Constant, Delay, DelayKind
from vflsim.vocabulary import FlopsPerSecond, Part
from vflsim.vocabulary.imported import OrModule, origin, reason

_EXACTLY_ONCE = Constant(value=1.0)


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
        return _EXACTLY_ONCE

    @abstractmethod
    def seconds(self, cost: OperationCost, draw: float) -> float:
        """Return how long an operation takes, in seconds, at least 0: a function of its cost and its draw alone."""


@final
class Flops(ComputeModel):
    """FLOPs of the real operation ÷ the device's speed, times the jitter.

    Example: ``{kind: flops, rate: 2 GFLOPS, jitter: {kind: lognormal, sigma: 0.2, median: 1}}``
    """

    kind: Literal["flops"] = "flops"
    proportional: ClassVar[bool] = True
    rate: FlopsPerSecond
    """Speed of the device."""
    jitter: AnyDelay | None = None
    """A random factor per operation: any kind of delay without its unit, e.g. lognormal with median 1."""

    @override
    def law(self) -> Delay:
        return self.jitter or _EXACTLY_ONCE

    @override
    def seconds(self, cost: OperationCost, draw: float) -> float:
        return cost.flops() / self.rate * draw


ComputeKind: TypeAlias = DelayKind | Flops
AnyCompute = Annotated[
    ComputeKind,
    Field(discriminator="kind"),
    OrModule(Delay, ComputeModel, trial="vflsim.timing.compute_trial:try_out"),
    QUANTITY,
]
"""A field that takes any way of computing, or a plain quantity for a constant time."""

COMPUTES: tuple[type[Part], ...] = get_args(ComputeKind)
"""Every kind of compute model."""


def law(compute: Delay | ComputeModel) -> Delay:
    """Return the law of the draw per operation, which is the duration itself or the input of the compute model."""
    return compute.law() if isinstance(compute, ComputeModel) else compute


def duration(compute: Delay | ComputeModel, draw: float, operation: Costed) -> float:
    """Give the seconds that an operation takes, given its draw from ``law(compute)``.

    A sampled time is multiplied by the operation's size in mini-batches. Raises ``RunError`` for what goes wrong in a
    compute model of the user's.
    """
    if not isinstance(compute, ComputeModel):
        return draw * operation.units
    cost = OperationCost(operation.kind, operation.rows, operation.units, operation.flops)
    if isinstance(compute, Flops):
        return compute.seconds(cost, draw)
    name = type(compute).__name__
    try:
        seconds = compute.seconds(cost, 1.0) * draw if compute.proportional else compute.seconds(cost, draw)
    except Exception as error:  # the user's code may raise anything
        what = f"the compute model {name} fails for {cost}: {reason(error)}"
        raise RunError(what, remedy=f"mend it; raised in {origin(error)}") from error
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        what = f"{name}.seconds is {seconds!r} for {cost} and a draw of {draw:g}"
        raise RunError(what, allowed="a number, finite and at least 0", remedy="mend 'seconds' of the class")
    return seconds
