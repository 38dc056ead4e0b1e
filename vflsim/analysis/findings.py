"""Findings of an analysis: a closed form with its conditions, or the reason why there is none."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from vflsim.errors import VflsimError
from vflsim.tables import Cell
from vflsim.timing.delays.base import sympy
from vflsim.timing.laws.law import Law
from vflsim.vocabulary.amounts import Amount

Unit: TypeAlias = Literal["s", "1/s", "steps", ""]
_UNWIELDY = 10_000
_LONGEST = 100
QUANTILES = (0.5, 0.9, 0.99, 0.999)
"""Levels of the quantiles that are reported."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number, or bounds of it.

    Example::

        Range(1, 2).known, 1.5 in Range(1, 2), str(Range.of(2.0))  # (False, True, '2')
    """

    low: float
    high: float

    @classmethod
    def of(cls, value: float) -> Range:
        """Give the range of a known number."""
        return cls(value, value)

    @property
    def known(self) -> bool:
        """Whether the number is known."""
        return self.low == self.high

    @property
    def amount(self) -> Amount:
        """The number, or both bounds where they differ in the first five digits."""
        alike = f"{self.low:.5g}" == f"{self.high:.5g}"
        return Amount(self.low, form=".5g") if alike else Amount(low=self.low, high=self.high, form=".5g")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return str(self.amount)


@dataclass(frozen=True, slots=True)
class Formula:
    """``left = right`` as sympy expressions; ``note`` explains its symbols.

    Example::

        import sympy

        Formula(sympy.Symbol("E"), 1 / sympy.Symbol("mu"), "mu: the rate").text  # 'E = 1/mu  (mu: the rate)'
    """

    left: sympy.Basic
    right: sympy.Basic
    note: str = ""

    @property
    def text(self) -> str:
        """On one line."""
        return f"{sympy.sstr(self.left)} = {sympy.sstr(_readable(self.right))}" + (
            f"  ({self.note})" if self.note else ""
        )

    @property
    def latex(self) -> str:
        """For a document, without the dollars."""
        note = rf" \quad \text{{({_escaped(self.note)})}}" if self.note else ""
        return f"{sympy.latex(self.left)} = {sympy.latex(_readable(self.right))}{note}"


Formulas: TypeAlias = Callable[[], tuple[Formula, ...]]
"""Formulas are built on demand, because sympy loads slowly."""


@dataclass(frozen=True)
class ClosedForm:
    """A quantity that follows without simulation, and its conditions.

    Either its distribution ``law`` is known, or bounds of it, ``law`` of smaller and ``slower`` of larger times, or its
    mean alone, ``given``. ``clients`` are those that the quantity belongs to (none: to the protocol).

    Example::

        form = ClosedForm("round", "s", ("constant delays",), formulas=tuple, given=Range.of(2.5))
        str(form.mean)  # '2.5'
        form.exactness  # 'exact'
    """

    name: str
    unit: Unit
    conditions: tuple[str, ...]
    formulas: Formulas = field(repr=False)
    law: Law | None = None
    slower: Law | None = None
    given: Range | None = None
    clients: tuple[int, ...] = ()

    @cached_property
    def mean(self) -> Range:
        """The mean, or its bounds."""
        if self.given is not None:
            return self.given
        assert self.law is not None, "a closed form has a law or a mean"
        low = self.law.expectation()
        return Range(low, low if self.slower is None else self.slower.expectation())

    @property
    def exactness(self) -> Literal["exact", "numeric", "bounds"]:
        """Whether the numbers come from a formula, from laws on a grid to within an error, or are bounds."""
        if self.slower is not None or not self.mean.known:
            return "bounds"
        return "exact" if self.law is None or self.law.error() == 0.0 else "numeric"

    @property
    def error(self) -> float:
        """Estimate of the absolute error of the mean: 0 where it comes from a formula."""
        return 0.0 if self.law is None else max(law.error() for law in (self.law, self.slower or self.law))

    @property
    def sd(self) -> float | None:
        """The standard deviation, where it is known."""
        return math.sqrt(self.law.variance()) if self.law is not None and self.slower is None else None

    def quantile(self, level: float) -> Range | None:
        """Give the quantile of a level, or its bounds; None where only the mean is known."""
        if self.law is None:
            return None
        low = float(self.law.quantile(level))
        return Range(low, low if self.slower is None else float(self.slower.quantile(level)))


@dataclass(frozen=True, slots=True)
class NoClosedForm:
    """The reason why there is no closed form; ``failed``: there should be one, but its computation failed.

    Example::

        NoClosedForm("round", "clients with outages have no law").failed  # False
    """

    name: str
    reason: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.name}: none: {self.reason}"

    @classmethod
    def because_of(cls, name: str, error: Exception) -> NoClosedForm:
        """Give the reason from an error: numbers out of reach, or a defect with its place."""
        if isinstance(error, VflsimError):
            return cls(name, error.what)
        frames = traceback.extract_tb(error.__traceback__)
        place = f", {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        text = " ".join(str(error).split())[:_LONGEST]
        return cls(
            name,
            f"its computation failed ({type(error).__name__}: {text}{place}); simulated times do not depend on it; "
            "please report the scenario",
            failed=True,
        )


@dataclass(frozen=True, slots=True)
class Simulated:
    """A mean from so many simulated ``rounds`` with its 95 % interval, and the ``reason`` why it has no closed form.

    Example::

        Simulated("round duration", "s", Range(0.21, 0.23), 20_000, "clients are late").mean.low  # 0.21
    """

    name: str
    unit: Unit
    mean: Range
    rounds: int
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: none: {self.reason}"


Finding: TypeAlias = ClosedForm | NoClosedForm | Simulated


@dataclass(frozen=True, slots=True)
class Choices:
    """A table that shows the effects of other values of the parameter ``key``. Each of ``rows`` begins with a value.

    Protocols that differ in this parameter alone have equal ``same``; only one of their tables is shown. ``best`` is
    the value with the best row, if one is.

    Example::

        Choices(
            key="t",
            title="mean round by t",
            columns=("mean round [s]",),
            rows=((1, "0.8"), (2, "1.3")),
            notes=("waits for the first t embeddings",),
            same="exponential uploads",
        ).rows[1][0]  # 2
    """

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    same: object
    best: str = ""


def _readable(expression: sympy.Basic) -> sympy.Basic:
    """Replace unreadable fractions by decimals of eight digits."""
    unwieldy = {r: sympy.Float(r, 8) for r in expression.atoms(sympy.Rational) if r.q > _UNWIELDY}
    return expression.xreplace(unwieldy)


def _escaped(text: str) -> str:
    for sign in "\\{}":
        text = text.replace(sign, " ")
    for sign in "&%$#_":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("^", r"\^{}").replace("~", r"\textasciitilde{}")
