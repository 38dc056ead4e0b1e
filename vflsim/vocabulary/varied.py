"""Values of one entry for many clients: a formula is evaluated for all of them at once, not validated one by one.

Only what gives the same values for certain is done here: formulas of ``+ - * /`` in fields of floats, in parts whose
keys do not depend on each other, or that know how to check many values (``Part.suits_all``). Everything else, and
every error, goes client by client.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.expressions import Expression
from vflsim.vocabulary.quantities import FORMULAS, Varying

_EXACT = 2**53
"""Whole numbers below this are the same in Python and in float64."""

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class CannotVaryError(Exception):
    """Raised where the clients' values have to be validated one by one."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: tuple[str, ...]
    values: NDArray[np.float64]


def varied(
    validate: Callable[[dict[str, Any]], Any], clients: Sequence[int], symbols: Mapping[str, float], formulas: int
) -> list[Any]:
    """Return the parts of ``clients``, in their order; clients with equal values share one.

    ``validate`` makes the part of the first client in a context; ``formulas`` is how many texts in it may use ``i`` or
    ``m``. Raises ``CannotVaryError``.
    """
    symbols = {**symbols, "i": 1, "m": clients[0]}
    try:
        template = validate({"symbols": symbols, FORMULAS: True})
    except ValueError as error:  # pydantic's, too
        raise CannotVaryError from error
    found = list(_varying(template, ()))
    if len(found) != formulas or not isinstance(template, Part):
        raise CannotVaryError
    known = {name: value for name, value in symbols.items() if name not in ("i", "m")}
    arrays = known | {"i": np.arange(1, len(clients) + 1), "m": np.asarray(clients)}
    leaves = [_Leaf(path, _values(each, arrays, len(clients))) for path, each in found]
    _must_suit(template, leaves)
    return _made(template, leaves)


def _varying(part: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Varying]]:
    for key in type(part).model_fields if isinstance(part, Part) else ():
        value = getattr(part, key)
        if isinstance(value, Varying):
            yield (*path, key), value
        else:
            yield from _varying(value, (*path, key))


def _values(each: Varying, symbols: Mapping[str, Any], count: int) -> NDArray[np.float64]:
    """Evaluate a formula for all clients, with the bits of ``Quantity.convert``."""
    number = _checked(_run(Expression.parse(each.formula), symbols))
    if each.factor.denominator > 1:
        number = _checked(number * each.factor.numerator) / each.factor.denominator
    else:
        number = number * each.factor.numerator
    values = np.broadcast_to(np.asarray(_checked(number), np.float64), count)
    if not each.quantity.allows(values, each.has_unit):
        raise CannotVaryError
    return values


def _run(expression: Expression, symbols: Mapping[str, Any]) -> Any:
    stack: list[Any] = []
    for token in expression.program:
        if token.kind == "number":
            stack.append(_checked(int(token.text) if token.text.isdigit() else float(token.text)))
        elif token.kind == "name":
            stack.append(_checked(symbols[token.text]))
        elif token.text == "neg":
            stack.append(-stack.pop())
        elif token.text in _OPERATORS:
            right, left = stack.pop(), stack.pop()
            if token.text == "/" and not np.all(right):
                raise CannotVaryError
            stack.append(_checked(_OPERATORS[token.text](left, right)))
        else:
            raise CannotVaryError
    return stack.pop()


def _checked(value: Any) -> Any:
    """Return numbers that Python would compute to the same bits: finite, and whole ones exact."""
    array = np.asarray(value)
    if array.dtype.kind not in "if" or not np.isfinite(array).all():
        raise CannotVaryError
    if array.dtype.kind == "i" and (array.max() >= _EXACT or array.min() <= -_EXACT):
        raise CannotVaryError
    return value


def _must_suit(template: Part, leaves: Sequence[_Leaf]) -> None:
    """Raise ``CannotVaryError`` unless each part along the paths suits all its values."""
    owners: dict[tuple[str, ...], dict[str, NDArray[np.float64]]] = {}
    for leaf in leaves:
        for depth in range(len(leaf.path)):
            owners.setdefault(leaf.path[:depth], {})
        owners[leaf.path[:-1]][leaf.path[-1]] = leaf.values
    for path, values in owners.items():
        part: Any = template
        for key in path:
            part = getattr(part, key)
        if not part.suits_all(values):
            raise CannotVaryError


def _made(template: Part, leaves: Sequence[_Leaf]) -> list[Any]:
    make = _maker(template, {leaf.path: place for place, leaf in enumerate(leaves)})
    if len(leaves) == 1:
        one: dict[float, Any] = {}
        numbers = leaves[0].values.tolist()
        return [one.get(number) or one.setdefault(number, make((number,))) for number in numbers]
    several: dict[tuple[float, ...], Any] = {}
    rows = list(zip(*(leaf.values.tolist() for leaf in leaves), strict=True))
    return [several.get(row) or several.setdefault(row, make(row)) for row in rows]


def _maker(part: Part, places: Mapping[tuple[str, ...], int]) -> Callable[[Sequence[float]], Any]:
    """Return a function that makes a copy of ``part`` with the numbers in the place of those at the paths."""
    plain = {path[0]: place for path, place in places.items() if len(path) == 1}
    inner: dict[str, Callable[[Sequence[float]], Any]] = {}
    for key in dict.fromkeys(path[0] for path in places if len(path) > 1):
        deeper = {path[1:]: place for path, place in places.items() if path[0] == key and len(path) > 1}
        inner[key] = _maker(getattr(part, key), deeper)

    def make(numbers: Sequence[float]) -> Any:
        changed: dict[str, Any] = {key: numbers[place] for key, place in plain.items()}
        changed |= {key: of(numbers) for key, of in inner.items()}
        return part.changed(changed)

    return make
