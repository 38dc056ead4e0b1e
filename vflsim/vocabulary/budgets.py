"""Budgets: how much virtual time, how many rounds, bytes or joules a run may spend."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import model_validator

from vflsim.vocabulary.amounts import quantity
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.quantities import ENERGY, SIZE, TIME, Count, PositiveSeconds, Quantity, split_unit

Cost: TypeAlias = Literal["time", "rounds", "bytes", "energy"]

UNITS: Mapping[Cost, str] = {"time": "s", "rounds": "rounds", "bytes": "B", "energy": "J"}
"""The costs of training that are counted, and their units."""
FORMS = "10 min, 200 rounds, 20 MB or 500 J"
_ROUNDS = re.compile(r"(?P<amount>.*\S)\s+rounds?\s*", re.DOTALL)
_NAMED: Mapping[str, Cost] = {
    **dict.fromkeys(TIME.units, "time"),
    **dict.fromkeys(SIZE.units, "bytes"),
    **dict.fromkeys(ENERGY.units, "energy"),
}


@dataclass(frozen=True)
class Budget:
    """The most that a run may spend of one cost: seconds, rounds (server steps), bytes of all messages, or joules."""

    cost: Cost
    amount: float

    def __str__(self) -> str:
        """Write the amount: ``600 s``, ``1 round``, ``20 MB``."""
        if self.cost == "rounds":
            return f"{self.amount:,.0f} round{'s' * (self.amount != 1)}"
        return str(quantity(self.amount, UNITS[self.cost]))


class Budgets(Part):
    """Budgets, each of which is a question of its own: which protocol is best when so much has been spent?

    Example: ``{time: 10 min, rounds: 200, bytes: 20 MB, energy: 500 J}``
    """

    time: PositiveSeconds | None = None
    """Virtual seconds."""
    rounds: Count | None = None
    """Rounds (server steps)."""
    bytes: Annotated[int, Quantity(SIZE, at_least=1, whole=True)] | None = None
    """Bytes of all messages: to the server, from it, and between clients."""
    energy: Annotated[float, Quantity(ENERGY, above=0)] | None = None
    """Joules of all parties that say what they draw."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.each:
            raise ValueError(f"a budget of nothing; allowed: one or several of {', '.join(UNITS)}, as {{time: 10 min}}")
        return self

    @property
    def each(self) -> tuple[Budget, ...]:
        """The budgets, in the order of the fields."""
        return tuple(Budget(cost, float(amount)) for cost in UNITS if (amount := getattr(self, cost)) is not None)


def budget_from_text(text: str) -> dict[str, Any]:
    """Parse a budget from the command line, whose unit says of what: ``10 min`` becomes ``{"time": "10 min"}``.

    Raises ValueError for a text without such a unit.
    """
    if rounds := _ROUNDS.fullmatch(text):
        return {"rounds": rounds["amount"]}
    try:
        unit = split_unit(text)[1]
    except ValueError:
        unit = ""
    if unit not in _NAMED:
        raise ValueError(f"{text!r} is no budget; allowed: {FORMS}")
    return {_NAMED[unit]: text}
