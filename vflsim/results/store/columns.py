"""What each column of a table may hold: its type, whether it is finite, and its range."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from vflsim.errors import printable
from vflsim.results.store.json_files import damaged
from vflsim.results.store.schema import EVENTS as EVENT_SCHEMA, metrics_schema, rounds_schema
from vflsim.tables import arrow
from vflsim.world.run_tables import AGES, ANY, COUNTS, EVENTS, ROUNDS, SPENT, Column, ValueRange, schema_of

ENERGY_BY_PARTY = "energy_by_party"
"""The name of the table, which runs have in which a party says what it draws."""

_TEXT, _NUMBER = pa.string(), pa.float64()
ENERGY_COLUMNS = (
    Column("party", _TEXT, meaning="``server`` or ``client-3``."),
    Column("state", _TEXT, meaning="``idle``, ``compute`` or ``radio``."),
    Column("seconds", _NUMBER, meaning="How long the party was in this state."),
    Column("watts", _NUMBER, meaning="Power that this state adds."),
    Column("amount", pa.int64(), meaning="Bytes sent and received (``radio``), or FLOPs (``compute``)."),
    Column("joules_each", _NUMBER, meaning="Energy of each byte or FLOP; 0 where none is stated."),
    Column("joules", _NUMBER, meaning="``watts * seconds + joules_each * amount``."),
)
ENERGY_SCHEMA = schema_of(ENERGY_COLUMNS)


def energy_by_party(columns: Mapping[str, Any]) -> pa.Table:
    """Make the table ``energy_by_party.parquet``: a row for each party and state."""
    arrays = [arrow.column(columns[field.name]).cast(field.type) for field in ENERGY_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=ENERGY_SCHEMA)


CLOSED_FORMS = "closed_forms"
CURVE_COLUMNS = (
    Column("protocol", _TEXT, meaning="The protocol."),
    Column(
        "quantity",
        _TEXT,
        meaning="``round_duration`` (s, of rounds after the first), or ``client_age`` (server steps; 0 for a step that "
        "used the client).",
    ),
    Column("client", pa.int32(), ValueRange(-1), meaning="The client; -1 if the curve is not of one client."),
    Column("x", _NUMBER, meaning="Where the curve is evaluated."),
    Column("cdf", _NUMBER, ValueRange(0, 1), meaning="P(quantity ≤ x), or its lower bound."),
    Column("cdf_upper", _NUMBER, ValueRange(0, 1), meaning="The same, or its upper bound."),
)
CURVES = schema_of(CURVE_COLUMNS)
"""The closed forms: one row per point of a curve."""


_COUNT = _SECONDS = ValueRange()

RANGES: Mapping[str, Mapping[str, ValueRange]] = {
    "metrics": {column.name: column.span for column in (*COUNTS, *AGES, SPENT)},
    "rounds": {column.name: column.span for column in ROUNDS},
    "events": {column.name: column.span for column in EVENTS if not pa.types.is_dictionary(column.type)},
    "answers": {
        "deadline_s": ValueRange(infinite=True),
        "queries": ValueRange(1),
        **dict.fromkeys(("answer_s_mean", "answer_s_median", "answer_s_p95", "answer_s_max"), _SECONDS),
        **dict.fromkeys(("replies_mean", "embeddings_mean"), ValueRange()),
        **dict.fromkeys(("complete", "empty"), ValueRange(0, 1)),
    },
    "arrivals": {"query": _COUNT, "client": ValueRange(1), "rows": _COUNT, "arrival_s": ValueRange(infinite=True)},
    ENERGY_BY_PARTY: {column.name: column.span for column in ENERGY_COLUMNS if column.type != _TEXT},
    CLOSED_FORMS: {column.name: column.span for column in CURVE_COLUMNS if column.type != _TEXT},
}
"""The range of each column of numbers by table; those of what was evaluated are not here."""


def range_of_column(table: str, column: str) -> ValueRange:
    """Return what a column of numbers may hold; anything for what was evaluated, and for what a protocol recorded."""
    return RANGES.get(table, {}).get(column, ANY)


def check_columns(path: Path, name: str, table: pa.Table) -> None:
    """Raise ResultsError, with file, column and row, for what no table of this ``name`` has.

    That is: another type, a missing value, NaN and infinity where a column has none, and names that steer a terminal.
    """
    schema = _schema_of(name, table.column_names)
    for column, values in zip(table.column_names, table.columns, strict=True):
        if printable(column, "") != column:
            raise damaged(path, f"the column {column!r} has control characters")
        field = None if schema is None or column not in schema.names else schema.field(column)
        if problem := _problem(values, field, RANGES.get(name, {}).get(column)):
            raise damaged(path, f"{column} {problem}")


def _schema_of(name: str, columns: Sequence[str]) -> pa.Schema | None:
    if name in ("metrics", "rounds"):
        return (metrics_schema if name == "metrics" else rounds_schema)(columns)
    return {"events": EVENT_SCHEMA, ENERGY_BY_PARTY: ENERGY_SCHEMA, CLOSED_FORMS: CURVES}.get(name)


def _problem(values: pa.ChunkedArray, field: pa.Field | None, span: ValueRange | None) -> str:
    """Say what is wrong with a column, if anything is."""
    kind = values.type
    if field is not None and kind != field.type:
        return f"holds values of type {kind}; allowed: {field.type}"
    if span is not None and not (pa.types.is_list(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return f"holds values of type {kind}; allowed: numbers"
    if values.null_count and not (field is not None and field.nullable):
        return f"lacks a value in row {values.is_null().index(True).as_py()}"
    if span is not None and pa.types.is_floating(kind):
        numbers = values.to_numpy()
        if (wrong := span.improper(numbers)).any():
            row = int(wrong.argmax())
            return f"is {numbers[row]:g} in row {row}; allowed: {span}"
    for name in _names_in(values):
        if printable(name, "") != name:
            return f"has the name {name!r}, with control characters"
    return ""


def _names_in(values: pa.ChunkedArray) -> Iterable[str]:
    """Return the different texts of a column; none of a column of numbers."""
    if pa.types.is_dictionary(values.type):
        return (name for chunk in values.chunks for name in chunk.dictionary.to_pylist() if name is not None)
    if pa.types.is_string(values.type):
        return (name for name in values.unique().to_pylist() if name is not None)
    return ()
