"""What a party draws: watts by what it does, and joules for each byte and each floating-point operation."""

from __future__ import annotations

from typing import Self, final

from pydantic import model_validator

from vflsim.vocabulary import Joules, Part, Watts


@final
class Power(Part):
    """The power that a party draws by what it does, and the energy of each byte and each operation; all add up.

    Examples: ``{idle: 2 W, compute: 6 W, radio: 1.2 W}``, ``{per_byte: 0.1 uJ, per_flop: 50 pJ}``
    """

    idle: Watts = 0.0
    """What it draws while it is up and does not compute."""
    compute: Watts | None = None
    """All that it draws, but for the radio, while it computes; by default as much as idle."""
    radio: Watts = 0.0
    """What it draws besides while a message moves from it or to it, and in its upload delays."""
    per_byte: Joules = 0.0
    """The energy of each byte that it sends or receives."""
    per_flop: Joules = 0.0
    """The energy of each floating-point operation that it performs."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("no power and no energy is named; allowed: any of its keys; name one, or leave it out")
        if self.compute is not None and self.compute < self.idle:
            raise ValueError(
                f"a party draws {self.compute:g} W while it computes, and {self.idle:g} W while it does not; allowed: "
                "compute from idle on; compute is the whole power, not what computing adds"
            )
        return self

    @property
    def computing(self) -> float:
        """The power while it computes, without the radio."""
        return self.idle if self.compute is None else self.compute
