"""Lists of ``{select: …, …}``: settings for many clients, checked and evaluated for each of them.

Formulas in an entry may use ``i`` (position within the selection, from 1), ``m`` (client number) and ``N``. Loading
validates an entry for every client that it selects, so that an error names the client. An entry without ``i`` and ``m``
is validated once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationError, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from vflsim.vocabulary.selections import Selection, members

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
            from vflsim.vocabulary.varied import CannotVaryError, varied  # imports numpy

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
