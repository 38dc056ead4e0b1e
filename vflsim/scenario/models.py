"""The vocabulary of scenario files. The docstrings are also the documentation of the JSON Schema."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from typing import Annotated, Any, TypeAlias, get_args

from pydantic import AfterValidator, Field, PrivateAttr

from vflsim.codecs import AnyCodec, Codec, Plain
from vflsim.learning.data.partition import Partition
from vflsim.learning.data.spec import Data
from vflsim.learning.privacy.blinding import BLINDING_OFF, Blinding
from vflsim.learning.training import Training
from vflsim.protocols import Protocol
from vflsim.protocols.hook_checks import mismatches
from vflsim.scenario.document import Document
from vflsim.scenario.sections import Evaluate, Models, ProtocolEntry, Record, Recording, recording
from vflsim.shipped import folder_name
from vflsim.stopping import Stop
from vflsim.tables import DataTable
from vflsim.timing.activation import AnyActivation
from vflsim.timing.availability import AnyAvailability
from vflsim.timing.capacity import Link
from vflsim.timing.compute import AnyCompute
from vflsim.timing.delays import AnyDelay, Constant
from vflsim.timing.party import PartyTiming, Power
from vflsim.vocabulary.base import Part, Shorthand, kind_from_text
from vflsim.vocabulary.budgets import Budgets
from vflsim.vocabulary.entries import Entry, OneOrMany, PerClient
from vflsim.vocabulary.measure import AnyMeasure, MeasureName
from vflsim.vocabulary.metric import MetricFacts
from vflsim.vocabulary.metrics import AnyMetric, MetricName
from vflsim.vocabulary.plain_yaml import dump, flow
from vflsim.vocabulary.quantities import UNIT_NAMES, Count, Number, is_symbol
from vflsim.vocabulary.targets import Target, Targets, named
from vflsim.world.networks import AnyNetwork, AnyTransport, Fair, Fluid

MAX_SEEDS = 100_000


def _symbol_name(name: str) -> str:
    if name in {"i", "m", "N"} or name in UNIT_NAMES:
        meaning = "a unit" if name in UNIT_NAMES else "a symbol of every formula"
        raise ValueError(f"a constant cannot be called {name!r}, which is {meaning}; choose another name")
    if not is_symbol(name):
        raise ValueError(f"a constant cannot be called {name!r}; allowed: 1 to 32 letters, digits and _; rename it")
    return name


def _seeds(value: Any) -> Any:
    """Expand ``0:5`` to 0, 1, 2, 3, 4."""
    if isinstance(value, str):
        ends = re.fullmatch(r"\s*(\d{1,18})\s*:\s*(\d{1,18})\s*", value)
        if ends is None:
            raise ValueError(f"{value!r} is not a range of seeds; allowed: 0:5 (0 to 4) or a list such as [0, 1, 2]")
        first, end = int(ends[1]), int(ends[2])
        if end <= first:
            raise ValueError(f"{value!r} holds no seed; allowed: first:end with first < end, as 0:5 for 0 to 4")
        if end - first > MAX_SEEDS:
            raise ValueError(f"{value!r} holds {end - first:,} seeds; allowed: at most {MAX_SEEDS:,}")
        return list(range(first, end))
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(
            f"{value} alone could mean two things; allowed: a list or a range; "
            f"write [{value}] for that one seed, 0:{value} for {value} seeds"
        )
    return value


def _no_repeats(seeds: tuple[int, ...]) -> tuple[int, ...]:
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1}) if len(set(seeds)) < len(seeds) else []
    if twice:
        raise ValueError(f"the seed {twice[0]} stands twice; allowed: every seed once; remove one of them")
    return seeds


FolderName: TypeAlias = Annotated[str, AfterValidator(folder_name)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
"""A whole number."""


class ServerTiming(Part):
    """Compute times, link, energy and slots of the server.

    Example: ``{compute: {kind: flops, rate: 10 GFLOPS}, link: {up: 300 Mbps, down: 300 Mbps}, power: {idle: 60 W,
    compute: 200 W}, concurrency: 16}``
    """

    compute: AnyCompute = Constant(value=0.0)
    """How long each computation of the server takes."""
    link: Link = Link()
    """The server's connection to the network; by default without limits."""
    power: Power | None = None
    """What the server draws; without it, nothing is counted."""
    concurrency: Count | None = None
    """The most messages that it receives and sends at a time; others wait. By default without limit."""


class ClientTiming(Part):
    """Timing of the clients that an entry selects; later entries refine earlier ones.

    A ``link`` is refined key by key; other settings are replaced as a whole.

    Example: ``{compute: 2 ms, link: {up: 20 Mbps, down: 100 Mbps, latency: 5 ms}, upload_delay: {kind:
    exponential, mean: 100 ms}, activation: {kind: poisson, rate: 2 /s}, availability: {kind: alternating, up: 60
    s, down: 5 s, interrupted: lost}, power: {idle: 2 W, compute: 6 W, radio: 1.2 W}}``
    """

    compute: AnyCompute | None = None
    """How long each computation of the client takes; without it, no time."""
    link: Link | None = None
    """The client's connection to the network; by default without limits."""
    upload_delay: AnyDelay | None = None
    """An additional delay before each upload: the straggling of the papers."""
    activation: AnyActivation | None = None
    """When the client may begin its next step; by default as soon as it is free."""
    availability: AnyAvailability | None = None
    """When the client is up; by default always."""
    power: Power | None = None
    """What the client draws; without it, nothing is counted."""


class Timing(Part):
    """Durations of the parties' computations and messages. Omitted ones take no time.

    Examples: ``{network: fifo, transport: tcp, server: {compute: 1 ms}, clients: [{select: all, compute: 2 ms},
    {select: N, upload_delay: 1 s}]}``, ``{preset: fedvs-6.2}``
    """

    preset: str | None = None
    """Timing that the other keys override: ``fedvs-6.2``, or another that ``vflsim list presets`` prints; or a file as
    ``vflsim calibrate`` writes, ``timing.yaml``."""
    network: AnyNetwork = Fair()
    """How messages share the parties' links."""
    transport: AnyTransport = Fluid()
    """How messages begin to move: at once, or as on connections of TCP."""
    server: ServerTiming = ServerTiming()
    """Compute times, link, energy and slots of the server."""
    clients: Annotated[tuple[Annotated[Entry[ClientTiming], PerClient(ClientTiming)], ...], OneOrMany()] = ()
    """Timing of the clients: one entry for all, or a list with ``select``; later entries refine earlier ones."""


class Scenario(Part):
    """A world, the protocols to compare in it, and the seeds of repetitions.

    Example: ``{name: study, constants: {slow: 20}, data: {name: digits}, partition: {clients: 4, by: columns},
    models: {client: {kind: mlp, hidden: [32], embedding: 16}, aggregate: mean, server: {kind: linear}}, training:
    {batch: 64, client_optimizer: {kind: sgd, lr: 0.1}, server_optimizer: {kind: sgd, lr: 0.1}}, timing: {clients:
    {compute: 2 ms, upload_delay: {kind: exponential, mean: (slow*m) ms}}}, protocols: {wait: {kind: synchronous},
    async: {kind: asynchronous}}, stop: {time: 10 s}, target: {test_accuracy: 90 %}, budget: {time: 5 s},
    evaluate: {every: 1 s}, metrics: {f1: {kind: macro_f1}}, measures: {slow: {kind: round_quantile, level: 0.95}},
    seeds: 0:5, record: rounds, codec: float16, modules: .}``
    """

    name: FolderName
    """Names the folder of the results."""
    constants: dict[Annotated[str, AfterValidator(_symbol_name)], Number] = Field(default_factory=dict)
    """Names that formulas may use; each may use those before it."""
    data: Data
    """The rows: where they come from, how they are split, scaled and labelled."""
    partition: Partition
    """Which client holds which features."""
    models: Models
    """The networks of the parties, and how embeddings are joined."""
    training: Training
    """Batches, update rules, precision and loss."""
    timing: Timing = Timing()
    """How long computations and messages take; by default no time."""
    protocols: Annotated[dict[FolderName, ProtocolEntry], Field(min_length=1)]
    """The protocols to compare, by names that the user chooses."""
    stop: Stop
    """When a run ends: as soon as one of these criteria is met."""
    target: Targets | None = None
    """Targets whose costs tables and figures report; they end no run. ``stop.target`` is reported, too."""
    budget: Budgets | None = None
    """Budgets for which tables say which protocol is best when so much has been spent; they end no run."""
    evaluate: Evaluate = Evaluate()
    """How often the models are evaluated."""
    metrics: dict[MetricName, AnyMetric] = Field(default_factory=dict)
    """Metrics that every evaluation reports besides those of the task, by names of your choice: ``f1`` becomes the
    columns ``validation_f1`` and ``test_f1``."""
    measures: dict[MeasureName, AnyMeasure] = Field(default_factory=dict)
    """Measures of each run that the summary estimates besides the usual ones, by names of your choice."""
    seeds: Annotated[
        tuple[Seed, ...],
        Field(min_length=1, max_length=MAX_SEEDS),
        AfterValidator(_no_repeats),
        Shorthand(_seeds, {"type": "string", "pattern": r"^\d+:\d+$"}),
    ] = (0,)
    """A list, or ``0:5`` for 0 to 4."""
    record: Annotated[Recording, Shorthand(recording, {"enum": list(get_args(Record))})] = Recording()
    """Which tables a run keeps, and whether it keeps what parties receive."""
    codec: Annotated[AnyCodec, Shorthand(kind_from_text, {"type": "string"})] = Plain()
    """What messages become on the wire; a protocol's own ``codec`` replaces it."""
    modules: str | None = None
    """The folder of your own modules, which ``{kind: module, path: "mine:Class"}`` names; by default the scenario's."""

    _document: Document = PrivateAttr(default_factory=lambda: Document({}))
    _symbols: dict[str, float] = PrivateAttr(default_factory=dict)
    _resolved: tuple[Timing, tuple[PartyTiming, ...]] | None = PrivateAttr(default=None)

    @property
    def document(self) -> Document:
        """The scenario as written, with overrides applied, and positions."""
        return self._document

    @property
    def symbols(self) -> Mapping[str, float]:
        """``N`` and the constants, which all formulas may use."""
        return self._symbols

    @property
    def clients(self) -> int:
        """M, the number of clients."""
        return int(self._symbols["N"])

    def resolved_once(self, resolve: Callable[[Timing, int], tuple[PartyTiming, ...]]) -> tuple[PartyTiming, ...]:
        """Return what ``resolve`` makes of the timing and the number of clients, made when it is first asked for."""
        if self._resolved is None or self._resolved[0] is not self.timing:  # a copy may have another timing
            self._resolved = self.timing, resolve(self.timing, self.clients)
        return self._resolved[1]

    def training_of(self, protocol: str) -> Training:
        """Return the training settings of ``protocol``."""
        return self.training.overridden(self.protocols[protocol].training)

    def participants_of(self, protocol: str) -> list[int]:
        """Return the clients that take part under ``protocol``, in their order."""
        return self.protocols[protocol].protocol.participants(self.clients, self.symbols)

    def models_of(self, protocol: str) -> Models:
        """Return the split model of ``protocol``."""
        return self.models.overridden(self.protocols[protocol].models)

    def codec_of(self, protocol: str) -> Codec:
        """Return the codec of ``protocol``."""
        return self.protocols[protocol].codec or self.codec

    def blinding_of(self, protocol: str) -> Blinding | None:
        """Return the blinding of ``protocol``: its entry's, or the one that it has by default."""
        entry = self.protocols[protocol]
        if entry.blinding == BLINDING_OFF:
            return None
        return entry.blinding or entry.protocol.traits.default_blinding

    def stop_of(self, protocol: str) -> Stop:
        """Return the stop rules of ``protocol``."""
        return self.stop.refined(self.protocols[protocol].stop)

    @property
    def metric_facts(self) -> dict[str, MetricFacts]:
        """What is known of the key ``metrics``, by name."""
        return {name: metric.facts for name, metric in self.metrics.items()}

    @property
    def targets(self) -> tuple[Target, ...]:
        """All targets: the scenario's own first, then those of stop rules. All apply to every protocol."""
        stops = [self.stop, *(entry.stop for entry in self.protocols.values() if entry.stop is not None)]
        return named([self.target, *(stop.target for stop in stops)])

    def evaluate_of(self, protocol: str) -> Evaluate:
        """Return the evaluation settings of ``protocol``."""
        return self.evaluate.refined(self.protocols[protocol].evaluate)

    def with_protocols(self, protocols: Mapping[str, Protocol]) -> Scenario:
        """Return this scenario with protocols added or replaced by name, including classes of the caller.

        Raises ValueError if a protocol cannot run with these clients or batches, or a name cannot name a folder.
        """
        from vflsim.scenario.resolve import check_context  # imports this module

        entries, raw = dict(self.protocols), copy.deepcopy(self._document.raw)
        for name, protocol in protocols.items():
            entries[folder_name(name)] = ProtocolEntry.model_construct(
                protocol=protocol,  # type: ignore[arg-type]  # may be outside the literal union
                models=None,
                training=None,
                stop=None,
                evaluate=None,
                mechanism=None,
                blinding=None,
                codec=None,
            )
            for each in mismatches(type(protocol)):
                raise ValueError(f"{each.what}; allowed: {each.allowed}; change its definition in {each.place}")
            protocol.check(replace(check_context(self), blinding=protocol.traits.default_blinding))
            raw.setdefault("protocols", {})[name] = protocol.model_dump(mode="json", exclude_none=True)
        extended = self.model_copy(update={"protocols": entries})
        extended._document = replace(self._document, raw=raw)
        return extended

    def _repr_html_(self) -> str:
        """Write the protocols as a table, and all of the scenario as YAML to unfold."""
        raw, seeds = self._document.raw, len(self.seeds)
        rows = []
        for name, entry in raw["protocols"].items():
            settings = {key: value for key, value in entry.items() if key != "kind"}
            rows.append((name, str(entry.get("kind", "")), flow(settings) if settings else "—"))
        runs = f"{len(rows)} protocols × {seeds} seed{'s' * (seeds != 1)} = {len(rows) * seeds} runs"
        header, title = ("protocol", "kind", "its own settings"), str(raw.get("name", "scenario"))
        table = DataTable(header, rows, title=title, notes=[f"{self.clients} clients; {runs}."], left=(0, 1, 2))
        return f"{table._repr_html_()}<details><summary>YAML</summary><pre>{escape(dump(raw))}</pre></details>"

    def __eq__(self, other: object) -> bool:
        """Compare values, independent of how they were written."""
        return isinstance(other, Scenario) and self.__dict__ == other.__dict__ and self._symbols == other._symbols

    __hash__ = None  # type: ignore[assignment]
