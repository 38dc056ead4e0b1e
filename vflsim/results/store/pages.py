"""``run.json``, and readers of the pages, tables and tensors of a results folder: what is damaged is an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from vflsim.errors import ResultsError, ScenarioError, printable
from vflsim.files import content, json_of, text
from vflsim.intervals import Variation
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
from vflsim.results.store.folder import RUN
from vflsim.version import __version__
from vflsim.vocabulary.measure import MeasuredValue
from vflsim.vocabulary.metric import MetricFacts
from vflsim.vocabulary.on_demand import torch
from vflsim.vocabulary.plain_yaml import MAX_VALUES, parse_value

Age = Literal["client_age", "row_age"]

SimulationPath = Literal["event", "vectorised"]
RunPath = SimulationPath | Literal["live"]
"""How times were computed: event by event, or by arrays over clients. The tables are the same."""


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
    together: PositiveInt | None = None
    """How many runs one program trained side by side, this one included; none without a program."""
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
    workers: tuple[PositiveInt, PositiveInt] | None = None
    """How many computations of the server, and of a client, may overlap (``pubsub_vfl``); None: one each."""
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
        usual = {name for name in ("execution", "workers") if not page.get(name)}
        return {key: value for key, value in page.items() if key not in usual}

    @model_validator(mode="after")
    def _consistent(self) -> RunInfo:
        if (self.status == "finished") != (self.error is None):
            raise ValueError("a run that failed or diverged names its error, a finished one has none")
        if (self.max_staleness is None) != (self.staleness_bounds is None):
            raise ValueError("max_staleness and staleness_bounds come together")
        return self


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


_MAPPINGS = ("stop", "constants", "partition", "training", "timing")
MOST_VALUES = 10 * MAX_VALUES
"""A stored scenario lists its seeds and clients one by one."""


_Page = TypeVar("_Page", bound=BaseModel)
REMEDY = "delete this run's folder and run the scenario again"


def damaged(path: Path, problem: str, remedy: str = REMEDY) -> ResultsError:
    """Make the error about a damaged file, with its remedy."""
    what = problem.splitlines()[0] if problem else "unreadable"
    return ResultsError(f"damaged: {what}", str(path), remedy=remedy)


def read_page(kind: type[_Page], path: Path, remedy: str = REMEDY) -> _Page:
    """Read a page of JSON. Raises FileNotFoundError without one, ResultsError if it is damaged."""
    try:
        return kind.model_validate(json_of(path))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise damaged(path, problem, remedy) from error


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read weights, or views, by name. Raises ResultsError if the file is absent or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(content(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise damaged(path, str(error)) from error


def read_scenario(path: Path) -> Mapping[str, Any]:
    """Read the scenario stored with results. Raises ResultsError if it is damaged."""
    try:
        scenario, _ = parse_value(text(path), path.name, MOST_VALUES)
    except ScenarioError as error:
        raise damaged(path, f"{error.where}: {error.what}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from error
    if not isinstance(scenario, dict) or not isinstance(scenario.get("protocols"), dict):
        raise damaged(path, "no protocols in it")
    sections = {key: scenario.get(key) for key in _MAPPINGS} | scenario["protocols"]
    for name in (str(scenario.get("name", "")), *scenario["protocols"]):
        _must_be_printable(path, name)
    if wrong := [key for key, value in sections.items() if not isinstance(value, dict | None)]:
        raise damaged(path, f"{wrong[0]} is no mapping")
    return scenario


def read_info(folder: Path) -> RunInfo:
    """Read the ``run.json`` of a folder. Raises ResultsError if it is damaged or belongs to another run."""
    path = folder / RUN
    page: Any = None
    try:
        info = RunInfo.model_validate(page := json_of(path))
    except ValidationError as error:
        raise _unfit(path, page, error) from error
    except (OSError, ValueError) as error:
        raise damaged(path, str(error)) from error
    for name in (info.scenario, info.protocol):
        _must_be_printable(path, name)
    if (info.protocol, f"seed-{info.seed}") != (folder.parent.name, folder.name):
        raise damaged(path, f"it belongs to {info.protocol}/seed-{info.seed}")
    return info


def _must_be_printable(path: Path, name: str) -> None:
    """Refuse names that vflsim writes nowhere: they would reach figures and pages, too."""
    if printable(name, "") != name:
        raise damaged(path, f"the name {name!r} has control characters")


def _unfit(path: Path, page: Any, error: ValidationError) -> ResultsError:
    """Make the error about a page with other keys or values: of another version of vflsim, or damaged."""
    first = error.errors()[0]
    problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    versions = page.get("versions") if isinstance(page, dict) else None
    writer = versions.get("vflsim") if isinstance(versions, dict) else None
    if not isinstance(writer, str) or writer == __version__:
        return damaged(path, problem)
    return ResultsError(
        f"cannot be read by vflsim {__version__}: {problem}",
        str(path),
        "pages with the keys of this version",
        f"vflsim {writer} has written this run: read it with that version, or run the scenario with another --out",
    )
