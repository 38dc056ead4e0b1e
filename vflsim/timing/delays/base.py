"""The base class of delays.

A simple delay is sampled by its inverse cdf: one uniform gives one delay, and a larger one never a shorter delay. A
composite one takes a uniform for each of its parts. Validation refuses delays that could be
negative, infinite or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Final, Protocol, Self, final

import numpy as np
from numpy.typing import ArrayLike
from pydantic import model_validator
from typing_extensions import override

from vflsim.errors import NoClosedFormError
from vflsim.streams import BLOCK, Uniforms
from vflsim.timing.floats import LARGEST_UNIFORM, Floats, floats
from vflsim.timing.laws.law import Atoms, Law, Point
from vflsim.timing.laws.order import Transformed
from vflsim.vocabulary import Part
from vflsim.vocabulary.imported import tried_out
from vflsim.vocabulary.on_demand import sympy
from vflsim.vocabulary.trial import Trial, type_of

__all__ = ["Delay", "Floats", "Regimes", "columns", "exact", "from_zero", "sympy"]


class Regimes(Protocol):
    """The states that a delay which is ``in_time`` goes through."""

    def law(self, now: float) -> tuple[int, Delay]:
        """Give number and law of the state at ``now`` seconds since the start."""


class Delay(Part, Law):
    """A distribution of delays in seconds.

    A kind of delay is a final subclass with its own ``kind``, its fields, and ``inverse_cdf`` or ``cdf``.

    Example, which a scenario names by ``upload_delay: {kind: module, path: "mine:Triangular", longest: 3 s}``::

        class Triangular(Delay):
            kind: Literal["triangular"] = "triangular"
            longest: PositiveSeconds

            def inverse_cdf(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
                return self.longest * np.sqrt(u)


        float(Triangular(longest=3).quantile(0.25))  # 1.5
    """

    kind: str

    in_time: ClassVar[bool] = False
    """Whether a draw depends on the instant when its activity begins."""

    @property
    def cycle_s(self) -> float:
        """The mean time (s) in which a delay that is ``in_time`` returns to its rarest state; 0 for other delays."""
        return 0.0

    @property
    def uniforms(self) -> int:
        """How many uniforms one draw consumes."""
        return 1

    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        """Give the cdf at ``x`` as a sympy expression, parameters as exact rationals.

        Raises NoClosedFormError where there is none, which is the default.
        """
        raise NoClosedFormError(
            f"a delay of kind {self.kind} has no formula", self.kind, "", "use its numbers: cdf and quantile"
        )

    def sample(self, u: Floats) -> Floats:
        """Turn uniforms in [0, 1) into delays; all finite and at least 0.

        Elementwise (inverse cdf) if a draw consumes one uniform; otherwise the last axis of ``u`` has ``uniforms``
        entries, and disappears.
        """
        return self.inverse_cdf(u)

    def regimes(self, seed: int, party: int, role: str) -> Regimes | None:
        """Give the states that the draws of a party in a role depend on; None if they depend on none."""
        return None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for name in ("cdf", "survival"):
            if name in cls.__dict__ and not cls.__module__.startswith("vflsim."):
                setattr(cls, name, _without_rounding(cls.__dict__[name]))

    def __eq__(self, other: object) -> bool:
        # By the fields alone: cached arrays do not compare.
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def _values(self) -> tuple[Any, ...]:
        values = self.__dict__
        return tuple([values[name] for name in type(self).__pydantic_fields__])

    def _check(self) -> None:
        """Raise ValueError if the parameters do not go together."""

    def _exactly_one(self, one: str, other: str) -> None:
        """Raise ValueError unless one of two alternative parameters is given."""
        names = [name for name in (one, other) if getattr(self, name) is not None]
        if len(names) != 1:
            number = f"both {one!r} and {other!r}" if names else f"neither {one!r} nor {other!r}"
            raise ValueError(f"{number} given; allowed: exactly one of them")

    @override
    def suits_all(self, values: Mapping[str, Floats]) -> bool:
        kind = type(self)
        checks = kind._check is not Delay._check or not kind.__module__.startswith("vflsim.")
        if checks or self.uniforms != 1 or not values:
            return False
        try:
            with np.errstate(all="ignore"):
                each = self.changed({key: numbers[:, None] for key, numbers in values.items()})
                seconds = [each.sample(np.array([0.0, LARGEST_UNIFORM])), floats(each.expectation())]
        except (TypeError, ValueError, ArithmeticError):  # it computes with single numbers alone
            return False
        return all(bool(((number >= 0) & (number < math.inf)).all()) for number in seconds)

    @model_validator(mode="after")
    def _must_be_possible(self) -> Self:
        if type(self).cdf is Law.cdf and type(self).inverse_cdf is Law.inverse_cdf:
            name = type(self).__name__
            raise ValueError(f"{name} defines neither 'cdf' nor 'inverse_cdf'; allowed: at least one of them")
        self._check()
        if not type(self).__module__.startswith("vflsim."):
            tried_out(self, self._contract_of_law)
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

    @np.errstate(all="ignore")
    def _contract_of_law(self, trial: Trial) -> None:
        """Compare what a delay of a user's class says about itself: cdf, quantiles, samples and moments of one law."""
        self._contract_of_types(trial)
        name, (shortest, longest) = trial.name, self.support
        possible = 0 <= shortest <= longest and not math.isinf(shortest)
        what, allowed = f"{name}.support is {shortest} to {longest}", "0 ≤ shortest ≤ longest, the shortest finite"
        trial.must(possible, what, allowed, "support")
        x = self.quantile(_LEVELS)
        rising = np.all(np.diff(x) >= 0) and np.all(np.isfinite(x))
        what, allowed = f"{name}.inverse_cdf decreases, or is not finite", "non-decreasing and finite below the level 1"
        trial.must(rising, what, allowed, "inverse_cdf")
        beyond = min(longest, 1e300)
        at = np.unique(np.concatenate([[-1.0, 0.0, shortest], x, (x[1:] + x[:-1]) / 2, [2 * x[-1] + 1, beyond]]))
        p = floats(self.cdf(at))
        trial.must(p.shape == at.shape, f"{name}.cdf returns shape {p.shape} for {at.shape}", "elementwise", "cdf")
        s = floats(self.survival(at))
        below, reached = floats(self.cdf(x * (1 - 1e-9))), floats(self.cdf(x * (1 + 1e-9)))
        off = (reached < _LEVELS - _AGREE) | (below > _LEVELS + _AGREE)
        for wrong, times, values, says, allowed, method in (
            (~((p >= -ROUNDING) & (p <= 1 + ROUNDING)), at, p, "", "between 0 and 1", "cdf"),
            (np.append(False, np.diff(p) < -ROUNDING), at, p, " falls: it", "non-decreasing", "cdf"),
            ((at < shortest) & (p > _AGREE), at, p, ", before the shortest time,", "0", "cdf"),
            ((at >= beyond) & (p < 1 - _AGREE), at, p, ", at the end,", "1", "cdf"),
            (off, x, reached, " disagrees with the cdf, which", "the level whose quantile it is", "inverse_cdf"),
            (~(np.abs(s + p - 1) < _AGREE), at, s, "", "1 − cdf", "survival"),
        ):
            for time, value in zip(times[wrong][:1], values[wrong][:1], strict=True):
                trial.must(False, f"{name}.{method}{says} is {value:.6g} at {time:.6g} s", allowed, method)
        self._contract_of_samples(trial)
        self._contract_of_moments(trial)

    def _contract_of_types(self, trial: Trial) -> None:
        for method in ("inverse_cdf", "cdf", "survival", "density"):
            for at in (np.array([0.25, 0.5, 0.75]), np.full((2, 3), 0.5)):
                if getattr(type(self), method) is not getattr(Law, method):
                    answer = trial.ask(method, at)
                    fits = isinstance(answer, np.ndarray) and answer.shape == at.shape and answer.dtype.kind in "fiub"
                    what = f"{trial.name}.{method} returns {type_of(answer)} for an array of shape {at.shape}"
                    allowed = "an array of that shape, each number from its own, as np.sqrt(x) returns"
                    trial.must(fits, what, allowed, method)
        trial.fact("support", lambda ends: len(ends) == 2, "two numbers, the shortest and the longest")
        atoms = self.atoms()
        allowed = "Atoms (vflsim.timing.laws.law) of values and masses"
        trial.must(isinstance(atoms, Atoms), f"{trial.name}.atoms returns {type_of(atoms)}", allowed, "atoms")
        for method in ("expectation", "variance"):
            if getattr(type(self), method) is not getattr(Law, method):
                answer = trial.ask(method)
                is_number = isinstance(answer, int | float | np.number)
                trial.must(is_number, f"{trial.name}.{method} returns {type_of(answer)}", "one number", method)

    def _contract_of_samples(self, trial: Trial) -> None:
        """Check draws, and their distribution by the test of Kolmogorov and Smirnov, wrong once in a million."""
        from scipy.stats import kstwo

        name = f"{trial.name}.sample"
        samples = trial.ask("sample", Uniforms(0, 0, "trial").blocks(0, _DRAWS // BLOCK, self.uniforms))
        fits = isinstance(samples, np.ndarray) and samples.shape == (_DRAWS,)
        trial.must(fits, f"{name} returns {type_of(samples)}", f"an array of shape {(_DRAWS,)}", "sample")
        possible = bool(np.all((samples >= 0) & np.isfinite(samples)))
        trial.must(possible, f"{name} gives {samples.min():.6g} s", "finite and at least 0", "sample")
        values, counts = np.unique(samples, return_counts=True)
        upto = np.cumsum(counts) / _DRAWS
        before = np.append(0.0, upto[:-1])
        gap = max(np.max(upto - self.cdf(values * (1 + 1e-9))), np.max(self.cdf(values * (1 - 1e-9)) - before))
        agree = kstwo.sf(max(float(gap), 0.0), _DRAWS) > _FALSE_ALARM
        what = f"{_DRAWS} draws of {name} are {gap:.3f} off its cdf"
        trial.must(agree, what, "samples of the law of the cdf", "sample")

    def _contract_of_moments(self, trial: Trial) -> None:
        kind = type(self)
        if kind.expectation is Law.expectation and kind.variance is Law.variance:
            return
        mean, variance = self.moments
        for method, default, moment, right, error in (
            ("expectation", Law.expectation, self.expectation(), mean, _MEAN_ERROR * mean),
            ("variance", Law.variance, self.variance(), variance, _VARIANCE_ERROR * variance),
        ):
            near = math.isfinite(right) and abs(moment - right) <= _AGREE * abs(right) + 4 * error
            agree = getattr(kind, method) is default or moment == right or near
            what = f"{trial.name}.{method} is {moment:.6g}, where the cdf has {right:.6g}"
            trial.must(agree, what, "that of the cdf", method)


ROUNDING: Final = 1e-12
"""The largest amount by which a cdf may leave [0, 1] or fall, which is the accuracy that closed forms assume."""
_MEAN_ERROR, _VARIANCE_ERROR = 1e-5, 1e-3
"""The errors of moments of a cdf on a grid, relative to them; smaller where the tail is light."""
_AGREE: Final = 1e-6
_LEVELS = np.concatenate([[1e-9, 1e-6, 1e-3], np.linspace(0.01, 0.99, 99), [0.999, 1 - 1e-6, 1 - 1e-9]])
_DRAWS: Final = 16 * BLOCK
_FALSE_ALARM: Final = 1e-6


def _without_rounding(method: Callable[[Any, ArrayLike], ArrayLike]) -> Callable[[Any, ArrayLike], Floats]:
    """Wrap a cdf or survival function from outside; replace values that rounding moves beyond [0, 1] by 0 or 1.

    Closed forms take logarithms and products of probabilities, where -1e-17 gives nan. A value further outside
    than rounding explains stays unchanged, and loading refuses it.
    """

    @wraps(method)
    def within(self: Any, x: ArrayLike) -> Floats:
        p = floats(method(self, x))
        return np.where((p < 0) & (p >= -1e-12), 0.0, np.where((p > 1) & (p <= 1 + 1e-12), 1.0, p))

    return within


def columns(u: Floats, start: int, count: int) -> Floats:
    """Give ``count`` of the uniforms that a draw consumes, shaped for a part that takes so many.

    The copy is contiguous: with strides, numpy may round the last bit differently.
    """
    return np.ascontiguousarray(u[..., start] if count == 1 else u[..., start : start + count])


def exact(value: float) -> sympy.Rational:
    """Give the decimal that a float is written as: 1/10 for 0.1."""
    return sympy.Rational(repr(value))


def from_zero(x: sympy.Symbol, cdf: Any) -> sympy.Expr:
    """Give the sympy cdf that is 0 up to 0 and ``cdf`` from there on."""
    return sympy.Piecewise((0, x <= 0), (cdf, True))


class Derived(Transformed, Delay):
    """A delay that is distributed by ``law``."""


_STEPS = 4
"""The most floats by which rounding may move a quantile below an atom."""


@final
@dataclass(frozen=True)
class OfDelay(Transformed):
    """``shift`` + ``scale`` · a delay."""

    delay: Delay
    shift: float = 0.0
    scale: float = 1.0

    @property
    @override
    def law(self) -> Delay:
        return self.delay

    @override
    def _place(self, x: ArrayLike) -> Floats:
        return (floats(x) - self.shift) / self.scale

    @override
    def _image(self, x: Floats) -> Floats:
        return self.shift + self.scale * x

    @override
    def summands(self) -> tuple[Law, ...]:
        return Point(self.shift), *(_scaled(law, self.scale) for law in self.delay.summands())

    @override
    def inverse_cdf(self, u: Floats) -> Floats:
        x = floats(self._image(self.delay.inverse_cdf(u)))
        for _ in range(_STEPS):  # (x − shift) / scale may round to a float below an atom
            x = np.where(self.cdf(x) < u, np.nextafter(x, np.inf), x)
        return x

    @override
    def density(self, x: ArrayLike) -> Floats:
        return super().density(x) / self.scale

    @override
    def variance(self) -> float:
        return self.scale * self.scale * self.delay.variance()

    @override
    def error(self) -> float:
        return self.scale * self.delay.error()


def _scaled(law: Law, scale: float) -> Law:
    """Give the law of ``scale`` times a summand of a delay."""
    if scale == 1.0:
        return law
    if isinstance(law, Point):
        return Point(scale * law.value)
    assert isinstance(law, Delay), "delays are made of delays"
    return OfDelay(law, 0.0, scale)
