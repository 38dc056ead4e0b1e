"""The tables of runs and studies: their columns, what each may hold, and the form in which they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, final

import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.errors import ResultsError, printable
from vflsim.files import opened
from vflsim.results.store.pages import REMEDY, damaged
from vflsim.tables import arrow
from vflsim.world import run_tables
from vflsim.world.run_tables import (
    AGES,
    ANY,
    COUNTS,
    ENERGY,
    EPSILON,
    ROUNDS,
    SPENT,
    Column,
    ValueRange,
    present,
    schema_of,
)

Columns = Mapping[str, Any]
"""Column name -> list, numpy array or arrow array; all of one length."""

Record = Literal["events", "rounds", "summary"]
"""Tables that are kept: all; metrics and rounds; metrics alone. Weights and run.json are always kept."""

TableName = Literal["metrics", "rounds", "events", "answers", "arrivals"]
"""The tables that vflsim writes: three of every run, and two of runs that answer under deadlines."""

SERVER = "server"
SPLITS = ("train", "validation", "test")
LISTS_TOGETHER = 1024
"""Lists per write batch of Parquet; chunks that are multiples of it do not affect the file."""


EVENTS = schema_of(run_tables.EVENTS)
_OF_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "answers": ("deadline_s", "queries", "answer_s_mean", "replies_mean", "embeddings_mean", "complete", "test_loss"),
    "arrivals": ("query", "client", "rows", "arrival_s"),
}
"""Columns of the tables of answers; metrics of the task come on top."""


def metrics_schema(names: Iterable[str]) -> pa.Schema:
    """Make the schema of a metrics table with these columns: the fixed ones around the evaluated ones.

    Evaluated columns (``test_accuracy``, …, ``epsilon``) keep their order. The schema leaves out any other
    column, so that a comparison with it shows them.
    """
    names = list(names)
    fixed = {column.name for column in (*COUNTS, *AGES)}
    scores = [name for name in names if name not in fixed and (split_of(name) or name == EPSILON)]
    counts = present(COUNTS, ENERGY in names)
    return schema_of([*counts, *(Column(name, pa.float64()) for name in scores), *AGES])


def rounds_schema(names: Iterable[str]) -> pa.Schema:
    """Make the schema of a table of rounds with these columns: with the energy where it is among them."""
    return schema_of(present(ROUNDS, ENERGY in names))


def split_of(column: str) -> str | None:
    """Return the split that a metrics column was measured on: ``test`` for ``test_accuracy``; None for ``bytes_up``."""
    split, _, metric = column.partition("_")
    return split if split in SPLITS and metric else None


@final
class RunTables:
    """The three tables of one run, as arrow tables in canonical form.

    ``metrics`` always exists; ``rounds`` and ``events`` are None if they were not recorded. Columns may be lists, NumPy
    arrays or Arrow arrays, in any order. Names (party, kind, …) are dictionary-encoded by first appearance, so equal
    values give equal bytes. Raises ResultsError for a missing, unknown, ill-typed or ragged column.
    """

    __slots__ = ("events", "metrics", "rounds")

    def __init__(
        self,
        metrics: Columns | pa.Table,
        rounds: Columns | pa.Table | None = None,
        events: Columns | pa.Table | None = None,
    ) -> None:
        self.metrics = _table("metrics", metrics, metrics_schema(_names_of(metrics)))
        self.rounds = None if rounds is None else _table("rounds", rounds, rounds_schema(_names_of(rounds)))
        self.events = None if events is None else _table("events", events, EVENTS)

    def kept(self, record: Record) -> RunTables:
        """Select the tables that ``record`` keeps."""
        return RunTables(
            self.metrics, None if record == "summary" else self.rounds, self.events if record == "events" else None
        )

    def named(self) -> dict[str, pa.Table]:
        """Return the existing tables by name."""
        tables = {"metrics": self.metrics, "rounds": self.rounds, "events": self.events}
        return {name: table for name, table in tables.items() if table is not None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunTables) and comparable(self) == comparable(other)

    def __repr__(self) -> str:
        return f"RunTables({', '.join(f'{name}: {table.num_rows} rows' for name, table in self.named().items())})"


def _names_of(columns: Columns | pa.Table) -> list[str]:
    return list(columns.column_names if isinstance(columns, pa.Table) else columns)


def _table(name: str, columns: Columns | pa.Table, schema: pa.Schema) -> pa.Table:
    names = set(_names_of(columns))
    if names != set(schema.names):
        missing, unknown = sorted(set(schema.names) - names), sorted(names - set(schema.names))
        raise ResultsError(
            f"columns missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}",
            where=f"table {name}",
            allowed=", ".join(schema.names),
        )
    arrays = [_array(f"{name}.{field.name}", columns[field.name], field) for field in schema]
    lengths = {field.name: len(array) for field, array in zip(schema, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        raise ResultsError(f"columns of different lengths: {lengths}", where=f"table {name}")
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(where: str, values: Any, field: pa.Field) -> pa.Array:
    """Make the canonical form of a column: the schema's type, one chunk, dictionaries in order of first appearance.

    Lists may stay in chunks that do not affect the file: together they can exceed the limit of one array.
    """
    is_name = pa.types.is_dictionary(field.type)
    wanted = pa.string() if is_name else field.type
    try:
        if isinstance(values, pa.ChunkedArray) and not _as_good_as_one(values):
            values = values.combine_chunks()
        # Not pa.array(values, type): it would truncate 1.5 to 1 silently; a cast raises.
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else arrow.column(values)
        array = _names(array).cast(field.type) if is_name else array.cast(wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ResultsError(str(error), where=where, allowed=f"values of type {wanted}") from error
    if array.null_count and not field.nullable:
        raise ResultsError(f"{array.null_count} values are missing", where=where, allowed=f"{wanted}, never null")
    return array


def _names(array: pa.Array) -> pa.DictionaryArray:
    """Encode names, with the dictionary in order of first appearance; for codes, look at the codes alone."""
    if not isinstance(array, pa.DictionaryArray):
        return array.cast(pa.string()).dictionary_encode()
    codes = array.indices.dictionary_encode()
    return pa.DictionaryArray.from_arrays(codes.indices, array.dictionary.cast(pa.string()).take(codes.dictionary))


def _as_good_as_one(values: pa.ChunkedArray) -> bool:
    """Whether lists are in several chunks, of which each but the last fills whole write batches."""
    return (
        pa.types.is_list(values.type)
        and values.num_chunks > 1
        and all(len(chunk) % LISTS_TOGETHER == 0 for chunk in values.chunks[:-1])
    )


def comparable(tables: RunTables) -> dict[str, list[bytes]]:
    """Convert tables to bytes, so that NaN equals NaN."""
    joined = {name: table.combine_chunks() for name, table in tables.named().items()}
    return {
        name: [table.schema.serialize().to_pybytes(), *(b.serialize().to_pybytes() for b in table.to_batches())]
        for name, table in joined.items()
    }


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


RANGES: Mapping[str, Mapping[str, ValueRange]] = {
    "metrics": {column.name: column.span for column in (*COUNTS, *AGES, SPENT)},
    "rounds": {column.name: column.span for column in ROUNDS},
    "events": {column.name: column.span for column in run_tables.EVENTS if not pa.types.is_dictionary(column.type)},
    "answers": {
        "deadline_s": ValueRange(infinite=True),
        "queries": ValueRange(1),
        **dict.fromkeys(("answer_s_mean", "answer_s_median", "answer_s_p95", "answer_s_max"), ValueRange()),
        **dict.fromkeys(("replies_mean", "embeddings_mean"), ValueRange()),
        **dict.fromkeys(("complete", "empty"), ValueRange(0, 1)),
    },
    "arrivals": {
        "query": ValueRange(),
        "client": ValueRange(1),
        "rows": ValueRange(),
        "arrival_s": ValueRange(infinite=True),
    },
    ENERGY_BY_PARTY: {column.name: column.span for column in ENERGY_COLUMNS if column.type != _TEXT},
    CLOSED_FORMS: {column.name: column.span for column in CURVE_COLUMNS if column.type != _TEXT},
}
"""The range of each column of numbers by table; those of what was evaluated are not here."""


def range_of_column(table: str, column: str) -> ValueRange:
    """Return what a column of numbers may hold; anything for what was evaluated, and for what a protocol recorded."""
    return RANGES.get(table, {}).get(column, ANY)


def read_table(
    path: Path, name: str | None = None, columns: Sequence[str] | None = None, remedy: str = REMEDY
) -> pa.Table:
    """Read a table, or some of its columns. Raises ResultsError if it is damaged, or not as tables of this ``name``.

    The error names the file, the column and the row: of another type, a missing value, NaN and infinity where a column
    has none, and names that steer a terminal.
    """
    try:
        with opened(path) as file:
            table = pq.ParquetFile(file).read(columns and list(columns))
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, str(error), remedy) from error
    if name is None:
        return table
    schema = _schema_for(name, table.column_names)
    for column, values in zip(table.column_names, table.columns, strict=True):
        if printable(column, "") != column:
            raise damaged(path, f"the column {column!r} has control characters")
        field = None if schema is None or column not in schema.names else schema.field(column)
        if problem := _problem(values, field, RANGES.get(name, {}).get(column)):
            raise damaged(path, f"{column} {problem}")
    wanted = columns or (_OF_ANSWERS.get(name, ()) if schema is None else schema.names)
    if missing := [column for column in wanted if column not in table.column_names]:
        raise damaged(path, f"no column {missing[0]}", remedy)
    return table


def _schema_for(name: str, there: Sequence[str]) -> pa.Schema | None:
    """Return the schema of a table; of metrics and rounds, given the columns ``there``."""
    if name in ("metrics", "rounds"):
        return (metrics_schema if name == "metrics" else rounds_schema)(there)
    return {"events": EVENTS, ENERGY_BY_PARTY: ENERGY_SCHEMA, CLOSED_FORMS: CURVES}.get(name)


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
