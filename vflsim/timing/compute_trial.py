"""Trial of a compute model from outside: seconds that follow from an operation's cost and its draw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Protocol

from vflsim.timing.base import Delay
from vflsim.timing.costs import OperationCost
from vflsim.timing.sampler import Sampler

_DRAWS = 4
_AGREE = 1e-9


class TriedComputeModel(Protocol):
    """What is tried out of a compute model."""

    @property
    def proportional(self) -> bool:
        """Whether seconds are proportional to the draw."""

    def law(self) -> Delay:
        """The law of the draw for each operation."""

    def seconds(self, cost: OperationCost, draw: float) -> float:
        """How long an operation takes."""


def try_out(model: Delay | TriedComputeModel) -> None:
    """Ask for the seconds of operations of many sizes. Raises ValueError for the first thing that is wrong.

    A delay has been tried out when it was made.
    """
    if isinstance(model, Delay):
        return
    own, law = type(model).__name__, model.law()
    if not isinstance(law, Delay):
        _refuse(f"{own}.law returned a {type(law).__name__}", "a Delay, such as a key of that type", "law")
    if not isinstance(model.proportional, bool):
        _refuse(f"{own}.proportional is {model.proportional!r}", "True or False", "proportional")
    sampler = Sampler(law, 0, 1, "compute.trial")
    for cost, index in product(_operations(), range(_DRAWS)):
        draw = sampler.draw(index)
        seconds, again = model.seconds(cost, draw), model.seconds(cost, draw)
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < math.inf:
            what = f"{own}.seconds is {seconds!r} for {cost} and a draw of {draw:g}"
            _refuse(what, "a number, finite and at least 0", "seconds")
        if seconds != again:
            what = f"{own}.seconds is {seconds:g}, then {again:g} for {cost} and a draw of {draw:g}"
            _refuse(what, "a function of cost and draw; let `law` say what is random", "seconds")
        if model.proportional and abs(seconds - draw * (one := model.seconds(cost, 1.0))) > _AGREE * seconds:
            what = f"{own}.seconds is {seconds:g} for a draw of {draw:g}, and {one:g} for a draw of 1"
            _refuse(what, "proportional to the draw, or proportional = False", "proportional")


def _operations() -> Iterator[OperationCost]:
    kinds = ("embed", "client_step", "server_step", "evaluate", "decode")
    for kind, rows, units, flops in product(kinds, (0, 1, 64, 10_000), (0.0, 1.0, 2.5), (0.0, 1e3, 1e12)):
        yield OperationCost(kind, rows, units, lambda flops=flops: flops)  # type: ignore[misc]


def _refuse(what: str, allowed: str, method: str) -> None:
    raise ValueError(f"{what}; allowed: {allowed}; mend '{method}' of the class")
