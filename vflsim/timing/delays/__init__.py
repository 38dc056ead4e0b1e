"""The kinds of delay, in seconds.

To add one: a final class like those imported here, and its name in ``DelayKind``.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, get_args

from pydantic import Field

from vflsim.errors import NoClosedFormError
from vflsim.timing.delays.base import Delay
from vflsim.timing.delays.basic import Constant, Exponential, Pareto, ShiftedExponential, Uniform
from vflsim.timing.delays.composite import HyperExponential, Maximum, Mixture, Sum
from vflsim.timing.delays.empirical import Empirical
from vflsim.timing.delays.families import Gamma, LogNormal, Normal, Weibull
from vflsim.timing.delays.modulated import MarkovModulated, State
from vflsim.vocabulary import Shorthand
from vflsim.vocabulary.imported import OrModule

__all__ = [
    "DELAYS", "QUANTITY", "AnyDelay", "Constant", "Delay", "DelayKind", "Empirical", "Exponential", "Gamma",
    "HyperExponential", "LogNormal", "MarkovModulated", "Maximum", "Mixture", "NoClosedFormError", "Normal", "Pareto",
    "ShiftedExponential", "State", "Sum", "Uniform", "Weibull",
]  # fmt: skip

DelayKind: TypeAlias = (
    Constant | Exponential | ShiftedExponential | Uniform | Normal | LogNormal | Gamma | Weibull | Pareto
    | HyperExponential | Mixture | Sum | Maximum | Empirical | MarkovModulated
)  # fmt: skip
DELAYS: tuple[type[Delay], ...] = get_args(DelayKind)
"""Every kind of delay."""


def _constant_from_quantity(value: Any) -> Any:
    """Expand a plain quantity, ``5 ms`` or 0.005, to a constant delay."""
    plain = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    return {"kind": "constant", "value": value} if plain else value


QUANTITY = Shorthand(
    _constant_from_quantity, {"type": ["number", "string"], "description": "a constant delay, such as 5 ms"}
)
AnyDelay = Annotated[DelayKind, Field(discriminator="kind"), OrModule(Delay), QUANTITY]
"""A field that takes any kind of delay, or a plain quantity for a constant one. Example: ``pause: AnyDelay``."""

# Delays may contain delays, and AnyDelay is defined only here.
for _kind in (Mixture, Sum, Maximum, State, MarkovModulated):
    _kind.model_rebuild(_types_namespace={"AnyDelay": AnyDelay})
