"""Selections of clients: ``all``, ``3``, ``1..N/2``, ``N/2+1..N``, ``1,4,7..9``, or lists; ``/`` rounds down."""

import numbers
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vflsim.vocabulary.expressions import Expression

ALLOWED = "'all', client numbers such as 3, ranges such as 1..N/2, several with commas or as a list"
_PER_CLIENT = ("i", "m")


class _SelectionField:
    """Annotation: check the spelling of a selection, keep it as written (lists become tuples)."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_spelt)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        item = [{"type": "integer", "minimum": 1}, {"type": "string"}]
        return {"anyOf": [*item, {"type": "array", "items": {"anyOf": item}, "minItems": 1}], "description": ALLOWED}


Selection = Annotated[str | int | tuple[str | int, ...], _SelectionField()]


def members(selection: object, symbols: Mapping[str, float | int]) -> list[int]:
    """Give the client numbers of a selection, in the order written, each once.

    ``symbols`` holds N (the number of clients) and the scenario's constants, but not ``i`` and ``m``, which follow from
    the selection. Raises ValueError for bad spelling, a client outside 1..N, or an empty selection.
    """
    count = int(symbols["N"])
    if selection == "all":
        return list(range(1, count + 1))
    known = {name: value for name, value in symbols.items() if name not in _PER_CLIENT}
    chosen: dict[int, None] = {}
    for text, first, last in _items(selection):
        low, high = first.floor_value(known), last.floor_value(known)
        if low > high:
            raise ValueError(f"{text!r} selects nobody: it is {low}..{high} with N = {count}; allowed: {ALLOWED}")
        if low < 1 or high > count:
            shown = f"{low}..{high}" if low != high else f"{low}"
            raise ValueError(f"{text!r} is {shown}, outside the clients; allowed: 1..{count}")
        chosen.update(dict.fromkeys(range(low, high + 1)))
    return list(chosen)


def others(selection: object, symbols: Mapping[str, float | int]) -> list[int]:
    """Give the clients outside a selection (None selects nobody), in client order. Raises what ``members`` raises."""
    chosen = set() if selection is None else set(members(selection, symbols))
    return [client for client in range(1, int(symbols["N"]) + 1) if client not in chosen]


def _spelt(value: Any) -> str | int | tuple[str | int, ...]:
    if value != "all":
        _items(value)
    return tuple(value) if isinstance(value, list) else value


def _items(selection: object) -> list[tuple[str, Expression, Expression]]:
    """Parse a selection into (text, first, last) triples."""
    parts = list(selection) if isinstance(selection, (list, tuple)) else [selection]
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts += [text.strip() for text in part.split(",")]
        elif isinstance(part, numbers.Integral) and not isinstance(part, bool):
            texts.append(str(part))
        else:
            raise ValueError(f"{part!r} is not a selection of clients; allowed: {ALLOWED}")
    if not texts:
        raise ValueError(f"an empty selection; allowed: {ALLOWED}")
    items = []
    for text in texts:
        first, dots, last = text.partition("..")
        if text == "all":
            raise ValueError(f"'all' stands alone, not beside others as in {selection!r}; allowed: {ALLOWED}")
        try:
            start = Expression.parse(first)
            items.append((text, start, Expression.parse(last) if dots else start))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a selection of clients ({error}); allowed: {ALLOWED}") from None
    return items
