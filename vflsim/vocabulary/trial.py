"""The trial of a user's class: it is asked, asked again, at last in the other order, and its answers are compared.

What a family of classes promises stands beside its base class, in ``_contract``: what to ask, and which answers fit.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

REPEATS = "the same each time, from what it is given alone: draw no random numbers in it, and keep no state"

SEEDS_AND_PARTIES = ((0, 1), (0, 2), (1, 1))
"""Those that times of parties are tried with."""


class ContractError(ValueError):
    """A part of a user's own class breaks the contract of its base class."""


@dataclass(frozen=True, slots=True)
class Question:
    """A call of a method: ``call`` of copies of ``inputs``. ``where`` says in words what these are."""

    method: str
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    where: str
    repeats: str


class Trial:
    """Asks a part of a user's own class, and refuses wrong answers by ``ContractError``.

    Example::

        def _contract(self, trial: Trial) -> None:
            trial.fact("width", is_number(above=0), "a number above 0")
            seconds = trial.ask("seconds", 3)
            trial.must(seconds > 0, f"{trial.name}.seconds is {seconds}", "above 0", "seconds")
    """

    def __init__(self, part: object) -> None:
        self.part, self.name = part, type(part).__name__
        self._asked: list[tuple[Question, Any]] = []

    def must(self, holds: object, what: str, allowed: str, method: str, remedy: str = "") -> None:
        """Refuse the part unless a statement ``holds``: what is wrong, what is allowed, and where to mend it."""
        if not holds:
            remedy = remedy or f"mend '{method}' of the class"
            raise ContractError(f"{what}; allowed: {allowed}; {remedy}")

    def fact(self, key: str, fits: Callable[[Any], bool], allowed: str, remedy: str = "") -> Any:
        """Return an attribute, whose value has to fit."""
        value = getattr(self.part, key, None)
        self.must(fits(value), f"{self.name}.{key} is {value!r}", allowed, key, remedy)
        return value

    def ask(
        self, method: str, *inputs: Any, where: str = "", call: Callable[..., Any] | None = None, repeats: str = REPEATS
    ) -> Any:
        """Return the answer of a method, or of ``call`` in its stead, to ``inputs``.

        It is asked twice, and once more at the ``end``: it has to answer the same, to change nothing that it is given,
        and to leave the global random generators alone. ``repeats`` says so in words.
        """
        where = f" {where}" if where else ""
        question = Question(method, call or getattr(self.part, method), inputs, where, repeats)
        answer = self._answer(question)
        self._compare(question, answer)
        self._asked.append((question, answer))
        return answer

    def must_be_tensor(self, method: str, value: Any, shape: Sequence[int], dtype: Any, where: str = "") -> None:
        """Refuse what is no tensor of this shape and dtype."""
        fits = hasattr(value, "dtype") and (tuple(value.shape), value.dtype) == (tuple(shape), dtype)
        what = f"{self.name}.{method} returned {type_of(value)}{where and ' '}{where}"
        self.must(fits, what, f"a Tensor of shape {tuple(shape)}, {dtype}", method)

    def end(self) -> None:
        """Ask everything once more, the last question first."""
        for question, answer in reversed(self._asked):
            self._compare(question, answer)

    def _answer(self, question: Question) -> Any:
        copies, before = copied(question.inputs), _generators()
        answer = question.call(*copies)
        what = f"{self.name}.{question.method}"
        for name, state in _generators().items():
            drawn = f"{what} draws from {name}'s global generator{question.where}"
            self.must(state == before[name], drawn, question.repeats, question.method)
        changes = f"{what} changes what it is given{question.where}"
        self.must(alike(copies, question.inputs), changes, "only to read it; copy it", question.method)
        return copied(answer)

    def _compare(self, question: Question, before: Any) -> None:
        again = self._answer(question)
        if not alike(before, again):
            one, two = first_difference(before, again)
            what = f"{self.name}.{question.method} gives {told(one)}, then {told(two)}{question.where}"
            self.must(False, what, question.repeats, question.method)


def _generators() -> dict[str, Any]:
    import numpy as np
    import torch

    _, words, place, *_ = np.random.get_state(legacy=True)
    states = torch.get_rng_state().numpy().tobytes(), (np.asarray(words).tobytes(), place), random.getstate()
    return dict(zip(("PyTorch", "NumPy", "Python"), states, strict=True))


def copied(value: Any) -> Any:
    """Return a copy of tensors, arrays and tables, within tuples and lists too; anything else as it is."""
    if isinstance(value, tuple | list):
        return type(value)(map(copied, value)) if type(value) in (tuple, list) else value
    if hasattr(value, "clone"):
        return value.detach().clone()
    return value.copy() if hasattr(value, "dtype") or hasattr(value, "equals") else value


def alike(one: Any, two: Any) -> bool:
    """Return whether two answers are the same to the bit; NaN is like NaN."""
    return next(_differences(one, two), None) is None


def first_difference(one: Any, two: Any) -> tuple[Any, Any]:
    """Return the first parts of two answers that are not alike."""
    return next(_differences(one, two))


def _differences(one: Any, two: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(one, tuple | list) and type(one) is type(two) and len(one) == len(two):
        for pair in zip(one, two, strict=True):
            yield from _differences(*pair)
    elif hasattr(one, "equals"):  # a table
        if type(one) is not type(two) or not one.equals(two):
            yield one, two
    elif not (hasattr(one, "shape") or hasattr(two, "shape")):
        if one != two and (one == one or two == two):
            yield one, two
    elif type(one) is not type(two) or (one.shape, one.dtype) != (two.shape, two.dtype):
        yield one, two
    else:
        differ = (one != two) & ((one == one) | (two == two))
        yield from zip(one[differ].tolist(), two[differ].tolist(), strict=True)


def told(value: Any) -> str:
    """Write a number or a text; describe any other answer by its type."""
    if isinstance(value, int | float | str):
        return f"{value:.6g}" if isinstance(value, float) else repr(value)
    return f"{len(value)} bytes" if isinstance(value, bytes) else type_of(value)


def type_of(value: Any) -> str:
    """Describe the type of an answer."""
    shaped = hasattr(value, "shape") and hasattr(value, "dtype")
    return f"a {type(value).__name__}{f' of shape {tuple(value.shape)}, {value.dtype}' if shaped else ''}"


def is_number(*, least: float = -math.inf, above: float | None = None, finite: bool = True) -> Callable[[Any], bool]:
    """Return what tests for a number, no truth value, that is not NaN: at least ``least``, and above ``above``."""

    def fits(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            return False
        return value >= least and (above is None or value > above) and not (finite and math.isinf(value))

    return fits


def is_any(*kinds: type) -> Callable[[Any], bool]:
    """Return what tests for instances of classes."""
    return lambda value: isinstance(value, kinds)


def is_some_of(names: tuple[str, ...]) -> Callable[[Any], bool]:
    """Return what tests for a tuple, not empty, of some of these names."""
    return lambda value: isinstance(value, tuple) and bool(value) and set(value) <= set(names)
