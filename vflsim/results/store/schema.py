"""Output of a run: three tables with fixed columns, and facts about the run (``run.json``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, final

import pyarrow as pa
from pydantic import (
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from vflsim.errors import ResultsError
from vflsim.intervals.steady import Variation
from vflsim.results.facts import (
    BlindingFacts,
    CodecFacts,
    Conditions,
    HeavyTail,
    NetworkFacts,
    PrivacyFacts,
    StalledClient,
    stalled_note,
)
from vflsim.tables.arrow import column
from vflsim.vocabulary.measure import MeasuredValue
from vflsim.vocabulary.metric import MetricFacts
from vflsim.world import run_tables
from vflsim.world.run_tables import AGES, COUNTS, ENERGY, EPSILON, ROUNDS, Column, present, schema_of

Columns = Mapping[str, Any]
"""Column name -> list, numpy array or arrow array; all of one length."""

Record = Literal["events", "rounds", "summary"]
"""Tables that are kept: all; metrics and rounds; metrics alone. Weights and run.json are always kept."""

Age = Literal["client_age", "row_age"]

TableName = Literal["metrics", "rounds", "events", "answers", "arrivals"]
"""The tables that vflsim writes: three of every run, and two of runs that answer under deadlines."""

SimulationPath = Literal["event", "vectorised"]
RunPath = SimulationPath | Literal["live"]
"""How times were computed: event by event, or by arrays over clients. The tables are the same."""

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


def columns_of(table: TableName, there: Iterable[str]) -> list[str]:
    """Name the columns that a table must have; for metrics and rounds, given the columns ``there``."""
    if table in _OF_ANSWERS:
        return list(_OF_ANSWERS[table])
    if table == "events":
        return list(EVENTS.names)
    return list((rounds_schema if table == "rounds" else metrics_schema)(there).names)


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


class FileFacts(BaseModel, frozen=True, extra="forbid"):
    """A file's digest: its SHA-256 and, for a table, its number of rows."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    rows: int | None = Field(default=None, ge=0)


class RunInfo(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Content of ``run.json``: facts about one run, among them all wall-clock figures.

    ``waits_for_all``, ``rounds_correspond``, ``awaited_replies`` and ``reference`` are the protocol's
    :class:`~vflsim.protocols.base.Traits`.
    """

    scenario: str
    """Name of the scenario."""
    protocol: str
    """Name of the protocol's entry."""
    seed: int
    """The seed."""
    status: Literal["finished", "diverged", "failed"]
    """``finished``; ``diverged``: a loss, embedding or gradient is non-finite or outgrew the blinding; ``failed``."""
    stop_reason: str | None = None
    """The stop rule that ended a finished run."""
    stop_detail: str | None = None
    """What a rule of ``stop.rules`` said."""
    error: str | None = None
    """Why the run failed or diverged."""
    reproducible: bool = True
    """False with ``stop.wall_clock`` or a ``measured`` compute model."""
    timing_only: bool = False
    """Whether nothing was trained."""
    path: RunPath = "event"
    """``event``, ``vectorised`` or ``live``: how times were computed."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Versions of vflsim, Python and libraries."""
    installed: dict[str, str] = Field(default_factory=dict)
    """Kinds that installed packages bring, each with its package and version."""
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    threads: int = Field(default=1, ge=1)
    """Threads of PyTorch."""
    tf32: bool = False
    """Whether a GPU rounded float32 products to TF32."""
    learning_plane: Literal["batched", "eager"] | None = None
    """``batched`` or ``eager``; none without training."""
    execution: dict[str, bool | int | str] = Field(default_factory=dict)
    """Other unusual options that the bits depend on."""
    one_by_one: tuple[str, ...] = ()
    """Clients that were not computed together, with the reason."""
    rows: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Number of rows of each split; empty without training."""
    data: dict[str, Any] = Field(default_factory=dict)
    """What was done to rows and columns of data from files."""
    counts: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Rounds, updates, bytes and so on at the end."""
    steps: tuple[str, ...] = ()
    """Kinds of events that count as ``updates``."""
    wall_clock_s: float = Field(ge=0)
    """Real time that the run took (s)."""
    participants: tuple[PositiveInt, ...]
    """Clients that take part, without excluded ones."""
    crashing: tuple[PositiveInt, ...] = ()
    """Participants whose outages lose work and messages."""
    stalled: tuple[StalledClient, ...] = ()
    """Clients that waited at the end for a message that could no longer come."""
    network: NetworkFacts | None = None
    """The network and transport."""
    heavy_tail: HeavyTail | None = None
    """The participants' delay with the heaviest tail."""
    privacy: PrivacyFacts | None = None
    """What a mechanism has spent: noise, adversary, and ε for a release, the run and a client."""
    blinding: BlindingFacts | None = None
    """Bits, fraction and rule of blinding, and the rounds that lacked an embedding."""
    codec: CodecFacts | None = None
    """What a codec with a range, or with latent noise, has transformed and saturated."""
    conditions: Conditions | None = None
    """What the run trained with beside its timing: features, labels, update rules, local steps."""
    waits_for_all: bool = False
    """Whether the protocol waits for all clients."""
    rounds_correspond: bool = False
    """Whether every participant begins its k-th work in round k, so that rounds can be paired."""
    variation: Variation | None = None
    """What the scenario says of the rounds and a single run cannot show."""
    reference: bool = False
    """Whether the server computes the clients' models, too, as ``centralised`` does."""
    metrics: dict[str, MetricFacts] = Field(default_factory=dict)
    """Facts of the scenario's own metrics."""
    measures: dict[str, MeasuredValue] = Field(default_factory=dict)
    """Values of the scenario's own measures, with units."""
    awaited_replies: tuple[str, ...] = ()
    """Extra messages that the server waits for before a step."""
    max_staleness: NonNegativeInt | None = None
    """The bound of the protocol, in server steps."""
    staleness_bounds: Age | None = None
    """The age that it bounds: ``client_age`` or ``row_age``."""
    files: dict[str, FileFacts] = Field(default_factory=dict)
    """SHA-256 of all other files of the run, with the number of rows of each table."""
    inputs: dict[str, str] | None = None
    """SHA-256 of data files, traces and own modules that the run has read, by path."""

    @model_serializer(mode="wrap")
    def _without_usual_options(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        page: dict[str, Any] = write(self)
        return page if self.execution else {key: value for key, value in page.items() if key != "execution"}

    @model_validator(mode="after")
    def _consistent(self) -> RunInfo:
        if (self.status == "finished") != (self.error is None):
            raise ValueError("a run that failed or diverged names its error, a finished one has none")
        if (self.max_staleness is None) != (self.staleness_bounds is None):
            raise ValueError("max_staleness and staleness_bounds come together")
        return self


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
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else column(values)
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


def cautions(info: RunInfo) -> Iterator[str]:
    """Yield sentences without a full stop on a run that says less than its tables seem to say; none if all is well."""
    if idle := _idle(info):
        yield idle
    if info.stalled:
        yield stalled_note(info.stalled)
    if info.blinding is not None and info.blinding.rounds_missing:
        yield info.blinding.sentence()
    if info.codec is not None and info.codec.saturated:
        yield info.codec.sentence()


def _idle(info: RunInfo) -> str:
    """Name what nobody has done: no round has ended, or no client has changed its model."""
    rounds, updates = (info.counts.get(name, -1) for name in ("rounds", "updates"))
    if info.status != "finished" or rounds < 0:
        return ""
    if rounds == updates == 0 and info.stop_reason == "target":
        return "the initial models meet the target, so nothing was trained: choose a harder one"
    if rounds == updates == 0:
        scores = "" if info.timing_only else ", so the scores are those of untrained models"
        return f"no round has ended and no client has done a step{scores}: see who waits (record: events)"
    if updates == 0 and info.participants:
        return (
            f"no client has done a step in {rounds:,} rounds, so only the server has learnt: "
            'await node.compute(…) of the clients\' operation with counts="update"'
        )
    return ""
