"""Compute models of the tests' own, as users write them: some work, and some break their contract, each in one way."""

import random
from typing import Any, ClassVar, Literal

from vflsim.protocol import AnyDelay, ComputeModel, Delay, FlopsPerSecond, OperationCost, Seconds


class Roofline(ComputeModel):
    """Some time to begin, then the longer of computing and reading; a draw adds to it."""

    kind: Literal["roofline"] = "roofline"
    rate: FlopsPerSecond
    a_row: Seconds = 0.0
    begin: Seconds = 0.0

    def seconds(self, cost: OperationCost, draw: float) -> float:
        return self.begin + max(cost.flops() / self.rate, cost.rows * self.a_row)


class Waiting(Roofline):
    """The same, and a random wait before it."""

    kind: Literal["waiting"] = "waiting"  # type: ignore[assignment]
    wait: AnyDelay

    def law(self) -> Delay:
        return self.wait

    def seconds(self, cost: OperationCost, draw: float) -> float:
        return draw + super().seconds(cost, 1.0)


class Jittered(ComputeModel):
    """What ``flops`` does, and something for each row."""

    kind: Literal["jittered"] = "jittered"
    proportional: ClassVar[bool] = True
    rate: FlopsPerSecond
    jitter: AnyDelay
    a_row: Seconds = 0.0

    def law(self) -> Delay:
        return self.jitter

    def seconds(self, cost: OperationCost, draw: float) -> float:
        return (cost.flops() / self.rate + cost.rows * self.a_row) * draw


class Units(ComputeModel):
    """What a constant delay does."""

    kind: Literal["units"] = "units"
    each: Seconds
    proportional: ClassVar[bool] = True

    def seconds(self, cost: OperationCost, draw: float) -> float:
        return self.each * cost.units * draw


class Negative(Units):
    def seconds(self, cost: OperationCost, draw: float) -> float:
        return cost.units - 1


class Text(Units):
    def seconds(self, cost: OperationCost, draw: float) -> Any:
        return "1 ms"


class Drawing(Units):
    def seconds(self, cost: OperationCost, draw: float) -> float:
        return random.random()


class Affine(Units):
    each_draw: AnyDelay

    def seconds(self, cost: OperationCost, draw: float) -> float:
        return 1.0 + draw

    def law(self) -> Delay:
        return self.each_draw


class Divides(Units):
    def seconds(self, cost: OperationCost, draw: float) -> float:
        return self.each / cost.rows


class NoLaw(Units):
    def law(self) -> Any:
        return 1.0


class LateFailure(Units):
    """Fails for a number of rows that the trial does not have."""

    def seconds(self, cost: OperationCost, draw: float) -> float:
        if cost.rows == 20:
            raise KeyError("twenty")
        return 0.001


class LateNegative(Units):
    def seconds(self, cost: OperationCost, draw: float) -> float:
        return -1.0 if cost.rows == 20 else 0.001
