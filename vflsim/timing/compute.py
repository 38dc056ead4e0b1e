"""Compute times: sampled from a delay, or from the operation's FLOPs and the device's speed."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, final, get_args

from pydantic import Field

from vflsim.timing.delays import QUANTITY, AnyDelay, Constant, Delay, DelayKind
from vflsim.vocabulary import FlopsPerSecond, Part
from vflsim.vocabulary.imported import OrModule

_EXACTLY_ONCE = Constant(value=1.0)


@final
class Flops(Part):
    """FLOPs of the real operation ÷ the device's speed, times the jitter.

    Example: ``{kind: flops, rate: 2 GFLOPS, jitter: {kind: lognormal, sigma: 0.2, median: 1}}``
    """

    kind: Literal["flops"] = "flops"
    rate: FlopsPerSecond
    """Speed of the device."""
    jitter: AnyDelay | None = None
    """A random factor per operation: any kind of delay without its unit, e.g. lognormal with median 1."""


ComputeKind: TypeAlias = DelayKind | Flops
AnyCompute = Annotated[ComputeKind, Field(discriminator="kind"), OrModule(Delay), QUANTITY]
"""A field that takes any way of computing, or a plain quantity for a constant time."""

COMPUTES: tuple[type[Part], ...] = get_args(ComputeKind)
"""Every kind of compute model."""


def law(compute: ComputeKind) -> Delay:
    """Give the law of the draw per operation: the duration itself, or the jitter (by default 1)."""
    if isinstance(compute, Flops):
        return compute.jitter or _EXACTLY_ONCE
    return compute


def duration(compute: ComputeKind, draw: float, flops: float, units: float = 1.0) -> float:
    """Give the seconds that an operation takes, given its draw from ``law(compute)``.

    ``flops`` is its real cost; ``units`` its size in mini-batches, by which a sampled time is multiplied.
    """
    return flops / compute.rate * draw if isinstance(compute, Flops) else draw * units
