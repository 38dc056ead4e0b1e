"""What every delay knows about itself.

A simple delay is sampled by its inverse cdf: one uniform gives one delay, and a larger one never a shorter delay. A
composite one takes a uniform for each of its parts. A delay that could come out negative, infinite or NaN is refused
when it is validated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator

from vflsim.errors import VflsimError
from vflsim.vocabulary import Part

if TYPE_CHECKING:
    import sympy

Floats: TypeAlias = NDArray[np.float64]

LARGEST_UNIFORM = 1.0 - 2.0**-53
_NOTHING = np.empty(0)


class NoClosedFormError(VflsimError, NotImplementedError):
    """A distribution has no cdf in closed form; its numbers are known nevertheless."""


class TooLargeError(VflsimError, ValueError):
    """A distribution is known in principle, but has too many parts to be computed."""

    exit_code = 2


class Course(Protocol):
    """What a delay that is ``in_time`` goes through."""

    def law(self, now: float) -> tuple[int, Delay]:
        """Give number and law of the state at ``now`` seconds since the start."""


class Delay(Part, ABC):
    """A distribution of delays in seconds.

    A kind of delay is a final subclass with its own ``kind``. The mean is called ``expectation``, because ``mean`` is
    what several kinds call a parameter.
    """

    kind: str

    in_time: ClassVar[bool] = False
    """Whether a draw depends on the instant at which its activity begins."""

    @property
    def uniforms(self) -> int:
        """How many uniforms one draw consumes."""
        return 1

    @abstractmethod
    def expectation(self) -> float:
        """Give the mean, in seconds."""

    @abstractmethod
    def variance(self) -> float:
        """Give the variance, in seconds squared (inf where it does not exist, or is beyond the floats)."""

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Floats:
        """Give the probability of a delay of at most ``x`` seconds, elementwise."""

    def survival(self, x: ArrayLike) -> Floats:
        """Give the probability of a delay above ``x`` seconds, elementwise; small ones precisely where possible."""
        return 1.0 - self.cdf(x)

    @abstractmethod
    def density(self, x: ArrayLike) -> Floats:
        """Give the derivative of the cdf (per second), elementwise; atoms have none."""

    def atoms(self) -> tuple[Floats, Floats]:
        """Give the delays that have a probability of their own, in order, and these probabilities."""
        return _NOTHING, _NOTHING

    def pieces(self) -> list[tuple[float, Sequence[Delay]]] | None:
        """Give the delay as a mixture of sums, the weight and the parts of each; None if it is neither."""
        return None

    def breaks(self) -> Floats:
        """Give the points where the cdf jumps or is not smooth, in order."""
        return np.array([end for end in self.support() if math.isfinite(end)])

    @abstractmethod
    def support(self) -> tuple[float, float]:
        """Give the shortest and the longest possible delay, in seconds (inf if unbounded)."""

    @abstractmethod
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        """Give the cdf at ``x`` as a sympy expression, parameters as exact rationals.

        Raises NoClosedFormError where there is none.
        """

    @abstractmethod
    def _inverse(self, u: Floats) -> Floats:
        """Give the inverse cdf, elementwise."""

    def sample(self, u: Floats) -> Floats:
        """Turn uniforms in [0, 1) into delays; all finite and at least 0.

        Elementwise (inverse cdf) if a draw consumes one uniform; otherwise the last axis of ``u`` has ``uniforms``
        entries, and goes.
        """
        return self._inverse(u)

    def quantile(self, q: ArrayLike) -> Floats:
        """Give the smallest x with cdf(x) ≥ q, elementwise, for q in [0, 1]; raises ValueError elsewhere.

        The shortest delay for 0, the longest for 1 (inf if unbounded).
        """
        levels = floats(q)
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"a quantile of level {q!r}; allowed: levels from 0 to 1")
        with np.errstate(divide="ignore"):
            return self._inverse(levels)

    def course(self, seed: int, party: int, role: str) -> Course | None:
        """Give what the draws of a party in a role go through if they depend on time; else None."""
        return None

    def __eq__(self, other: object) -> bool:
        # By what was said: what a delay has computed about itself meanwhile (arrays) does not compare.
        return type(self) is type(other) and self._said() == other._said()

    def __hash__(self) -> int:
        return hash((type(self), self._said()))

    def _said(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in type(self).model_fields)

    def _check(self) -> None:
        """Raise ValueError if the parameters do not go together."""

    @model_validator(mode="after")
    def _must_be_possible(self) -> Self:
        self._check()
        shape = (2,) if self.uniforms == 1 else (2, self.uniforms)
        extremes = np.empty(shape)
        extremes[0], extremes[1] = 0.0, LARGEST_UNIFORM
        with np.errstate(all="ignore"):
            shortest, longest = self.sample(extremes).tolist()
            mean = self.expectation()
        for what, seconds in (("delay", shortest), ("delay", longest), ("mean", mean)):
            if not 0 <= seconds < math.inf:
                raise ValueError(f"a {what} of {seconds} s could come out; allowed: finite and at least 0")
        return self


def floats(x: ArrayLike) -> Floats:
    """Give ``x`` as a float64 array."""
    return np.asarray(x, dtype=np.float64)


def total(values: Iterable[float]) -> float:
    """Give the exact sum, rounded once; inf where it is beyond the floats."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def columns(u: Floats, start: int, count: int) -> Floats:
    """Give ``count`` of the uniforms that a draw consumes, as a part that takes so many wants them.

    Always in one piece: numpy may round the last bit differently when it has to stride.
    """
    return np.ascontiguousarray(u[..., start] if count == 1 else u[..., start : start + count])


def exact(value: float) -> sympy.Rational:
    """Give the decimal that a float is written as: 1/10 for 0.1."""
    import sympy

    return sympy.Rational(repr(value))


def from_zero(x: sympy.Symbol, cdf: Any) -> sympy.Expr:
    """Give the sympy cdf that is 0 up to 0 and ``cdf`` from there on."""
    import sympy

    return sympy.Piecewise((0, x <= 0), (cdf, True))
