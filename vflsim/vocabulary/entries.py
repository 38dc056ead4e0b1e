"""Lists of ``{select: …, …}``: settings for many clients, checked and evaluated for each of them.

Formulas in an entry may use ``i`` (position within the selection, from 1), ``m`` (client number) and ``N``. Loading
validates an entry for every client that it selects, so that an error names the client. An entry without ``i`` and ``m``
is validated once.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationError, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.expressions import Expression, Selection, literal, members
from vflsim.vocabulary.quantities import FORMULAS, Varying

_EXACT = 2**53
"""Whole numbers below this are the same in Python and in float64."""


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
    pairs = list(_varying(template, ()))
    if len(pairs) != formulas or not isinstance(template, Part):
        raise CannotVaryError
    known = {name: value for name, value in symbols.items() if name not in ("i", "m")}
    arrays = known | {"i": np.arange(1, len(clients) + 1), "m": np.asarray(clients)}
    leaves = [_Leaf(path, _values(each, arrays, len(clients))) for path, each in pairs]
    _must_suit(template, leaves)
    return _parts(template, leaves)


def _varying(part: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Varying]]:
    for key in type(part).model_fields if isinstance(part, Part) else ():
        value = getattr(part, key)
        if isinstance(value, Varying):
            yield (*path, key), value
        else:
            yield from _varying(value, (*path, key))


def _values(each: Varying, symbols: Mapping[str, Any], count: int) -> NDArray[np.float64]:
    """Evaluate a formula for all clients, with the bits of ``Quantity.convert``."""
    formula = Expression.parse(each.formula)
    number = formula.run(literal, symbols.__getitem__, _divided, _no_power, _checked)
    if each.factor.denominator > 1:
        number = _checked(number * each.factor.numerator) / each.factor.denominator
    else:
        number = number * each.factor.numerator
    values = np.broadcast_to(np.asarray(_checked(number), np.float64), count)
    if not each.quantity.allows(values, each.has_unit):
        raise CannotVaryError
    return values


def _divided(left: Any, right: Any) -> Any:
    if not np.all(right):
        raise CannotVaryError
    return left / right


def _no_power(_: Any, __: Any) -> Any:
    raise CannotVaryError


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


def _parts(template: Part, leaves: Sequence[_Leaf]) -> list[Any]:
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


T = TypeVar("T")

FOR_CLIENT = "vflsim_for_client"
"""Type of the pydantic errors that are about one client of an entry."""

FEW = 16
"""Clients up to which an entry is validated one by one."""
_OWN_SYMBOL = re.compile(r"(?<![A-Za-z0-9_])[im](?![A-Za-z0-9_])")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """An entry's selected clients and their values (a single value if it is the same for all)."""

    select: Any
    clients: tuple[int, ...]
    values: tuple[T, ...]

    def __iter__(self) -> Iterator[tuple[int, T]]:
        """Yield pairs of client number and value, in the selected order."""
        values = self.values * len(self.clients) if len(self.values) == 1 else self.values
        return zip(self.clients, values, strict=True)


@dataclass(frozen=True, eq=False)
class PerClient:
    """Annotation of ``Entry[…]``: a mapping with ``select`` (default ``all``) beside the keys of ``part``."""

    part: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # The inner schema serves the JSON Schema alone: validation needs a different context for each client.
        return core_schema.with_info_wrap_validator_function(self._validate, handler.generate_schema(self.part))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        select = {**TypeAdapter(Selection).json_schema(), "default": "all", "examples": ["1..N/2"]}
        return with_keys(handler(schema), handler.resolve_ref_schema, {"select": select})

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.part)

    def _validate(self, value: Any, _: Callable[[Any], Any], info: ValidationInfo) -> Entry[Any]:
        symbols: Mapping[str, float] = (info.context or {}).get("symbols") or {}
        if not isinstance(value, Mapping):
            self._adapter.validate_python(value)
            raise ValueError("an entry must be a mapping; allowed: {select: …, …}")
        if "N" not in symbols:
            return Entry("all", (), ())  # the number of clients is invalid: a separate error
        select = value.get("select", "all")
        fields = {key: item for key, item in value.items() if key != "select"}
        clients = _chosen(select, symbols)
        if not mentions_own_symbol(fields):
            return Entry(select, clients, (self._evaluated(fields, symbols, 1, clients[0]),))
        if len(clients) > FEW:
            try:
                make = partial(self._adapter.validate_python, fields)
                values = varied(lambda context: make(context=context), clients, symbols, formulas_in(fields))
                return Entry(select, clients, tuple(values))
            except CannotVaryError:
                pass
        try:
            values = []
            for i, m in enumerate(clients, start=1):
                values.append(self._evaluated(fields, symbols, i, m))
        except ValidationError as error:
            raise _for_client(error, client=m, position=i) from None
        return Entry(select, clients, tuple(values))

    def _evaluated(self, fields: dict[str, Any], symbols: Mapping[str, float], i: int, m: int) -> Any:
        return self._adapter.validate_python(fields, context={"symbols": {**symbols, "i": i, "m": m}})


class OneOrMany:
    """Annotation of a tuple: a single mapping is short for a list of one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: [value] if isinstance(value, Mapping) else value, handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


def for_each(entries: Iterable[Entry[T]], clients: int, what: str) -> tuple[T, ...]:
    """Return every client's value, in client order: that of the last entry that selects it. ``what`` names it.

    Raises ValueError if no entry selects a client.
    """
    values: dict[int, T] = {}
    for entry in entries:
        values.update(entry)
    everybody = range(1, clients + 1)
    if not values.keys() >= set(everybody) and (without := [client for client in everybody if client not in values]):
        raise ValueError(
            f"client {without[0]} has no {what} ({len(without)} of {clients} have none); "
            "allowed: entries that together select every client; begin with an entry `select: all`"
        )
    return tuple(map(values.__getitem__, everybody))


def with_keys(
    schema: JsonSchemaValue, resolve: Callable[[JsonSchemaValue], JsonSchemaValue], extra: Mapping[str, JsonSchemaValue]
) -> JsonSchemaValue:
    """Return the JSON Schema of mappings that may have ``extra`` keys besides those of ``schema``."""
    node = resolve(schema)
    if "properties" in node:
        return {**node, "properties": {**extra, **node["properties"]}}
    result = {key: value for key, value in node.items() if key != "discriminator"}
    for alternatives in ("anyOf", "oneOf"):
        if alternatives in node:
            result[alternatives] = [with_keys(each, resolve, extra) for each in node[alternatives]]
    return result


def _for_client(error: ValidationError, client: int, position: int) -> ValidationError:
    """Return the same error with the client, and its position within the selection."""
    lines: list[InitErrorDetails] = []
    for detail in error.errors(include_url=False):
        context = {"detail": detail, "client": f" for client {client} (i = {position}, m = {client})"}
        custom = PydanticCustomError(FOR_CLIENT, "wrong for one client", context)
        lines.append(InitErrorDetails(type=custom, loc=detail["loc"], input=detail["input"]))
    return ValidationError.from_exception_data(error.title, lines)


def _chosen(select: Any, symbols: Mapping[str, float]) -> tuple[int, ...]:
    try:
        return tuple(members(select, symbols))
    except ValueError as error:
        problem = PydanticCustomError("value_error", "{error}", {"error": str(error)})
        line = InitErrorDetails(type=problem, loc=("select",), input=select)
        raise ValidationError.from_exception_data("select", [line]) from None


def mentions_own_symbol(value: Any) -> bool:
    """Return whether a formula inside may use ``i`` or ``m`` (a false positive only costs time)."""
    return formulas_in(value) > 0


def formulas_in(value: Any) -> int:
    """Count the texts inside that may use ``i`` or ``m``."""
    if isinstance(value, str):
        return int(_OWN_SYMBOL.search(value) is not None)
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return sum(map(formulas_in, inside))
