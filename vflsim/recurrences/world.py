"""The inputs of a run's times: draws, sizes and rates of every party.

Sizes and FLOPs come from the learners' real operations and from the codec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vflsim.codecs import Codec
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.party import PartyLearner
from vflsim.recurrences.acts import Acts, MakeActs, split_acts
from vflsim.recurrences.stages import Ints, Source, Stage
from vflsim.setting import Algorithm, Setting
from vflsim.streams import BLOCK, SERVER
from vflsim.timing.base import Delay, Floats
from vflsim.timing.capacity import AnyCapacity
from vflsim.timing.compute import AnyCompute, duration, law
from vflsim.timing.delays import Constant
from vflsim.timing.latency import LatencyMatrix
from vflsim.timing.link import Link
from vflsim.timing.party import PartyTiming
from vflsim.timing.sampler import Sampler
from vflsim.world.messages import Gradient
from vflsim.world.transfers import Latency
from vflsim.world.wire import specs_of


@dataclass(frozen=True, slots=True)
class Way:
    """The links of M clients in one direction: latencies, rates (M,) in bit/s, bytes of a message with a tensor (2, M).

    The first row of bytes is for a full batch, the second for the last batch of an epoch.
    """

    latency: Stage
    rates: Floats
    sizes: Ints

    @property
    def seconds(self) -> Floats:
        """Durations of the transfers (2, M)."""
        return seconds(self.sizes, self.rates)


def seconds(sizes: Any, rates: Floats) -> Floats:
    """Return the durations of transfers of ``sizes`` bytes at ``rates`` bit/s."""
    taken: Floats = 8 * sizes / rates
    return taken


@dataclass(frozen=True, slots=True)
class ComputeTimes:
    """One kind of computation of M clients: draws, and seconds per unit drawn (2, M) as in ``Way``."""

    draws: Stage
    factors: Floats

    def rows(self, first: int, kinds: Ints) -> Floats:
        """Return the seconds (n, M) in rounds from ``first`` on, with batches of ``kinds`` (n,)."""
        taken = self.draws.rows(first, len(kinds))
        if (self.factors != 1.0).any():
            taken = taken * self.factors[kinds]
        return taken

    def take(self, index: Ints, kind: int) -> Floats:
        """Return the seconds (M,) of every client's ``index[c]``-th such computation, on a batch of ``kind``."""
        taken: Floats = self.draws.take(index) * self.factors[kind]
        return taken


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The steps that M clients take in a round: draws, and seconds per unit drawn (steps, 2, M)."""

    draws: Stage
    factors: Floats

    @property
    def count(self) -> int:
        """The steps of a client in a round."""
        return len(self.factors)

    def rows(self, first: int, kinds: Ints) -> Floats:
        """Return the seconds (n, steps, M) in rounds from ``first`` on, with batches of ``kinds`` (n,)."""
        rounds, steps = len(kinds), self.count
        taken = self.draws.rows(first * steps, rounds * steps)
        taken = taken.reshape(rounds, steps, taken.shape[1])
        if (self.factors != 1.0).any():
            taken = taken * self.factors[:, kinds].swapaxes(0, 1)
        return taken


class TimedWorld:
    """All parties of one run. ``clients`` are the participants; ``empty`` is the size of a message without tensors.

    Example::

        world = TimedWorld(Synchronous(), setting, seed=0)
        world.clients.tolist(), world.length(0)  # ([1, 2, 3, 4], 20)
    """

    def __init__(self, protocol: Algorithm, setting: Setting, seed: int, acts: MakeActs = split_acts) -> None:
        learners = protocol.learners(setting, seed)
        server, clients, timings, codec = learners.server, learners.clients, setting.timings, setting.codec
        self.clients = np.array(list(clients), np.int32)
        self.sequence = protocol.batch_plan().batches(setting.data.rows, setting.training, seed)
        self._batches = [self.sequence.batch(0), self.sequence.batch(self.sequence.per_epoch - 1)]
        own = [timings[client] for client in clients]
        first: dict[Any, int] = {}  # of clients with the same model and shape of features, which have the same costs
        alike = [first.setdefault(setting.alike(client), place) for place, client in enumerate(clients)]
        probes = [_Probe(acts, server, clients, batch, codec, alike) for batch in self._batches]
        self.embed = self._work(seed, own, "embed", [probe.embed for probe in probes], alike)
        self.steps = self._local_steps(seed, own, probes, alike)
        self.step = ComputeTimes(self.steps.draws, self.steps.factors[0])
        self.upload = _delays(seed, list(clients), [timing.upload_delay for timing in own], "upload")
        links, matrix = [timing.link for timing in timings], setting.network.latency
        self.up = Way(
            _latencies(links, matrix, [(client, SERVER) for client in clients], seed),
            np.array([_rate(links[client].up, links[SERVER].down) for client in clients]),
            np.array([probe.embedding_bytes for probe in probes]),
        )
        self.down = Way(
            _latencies(links, matrix, [(SERVER, client) for client in clients], seed),
            np.array([_rate(links[SERVER].up, links[client].down) for client in clients]),
            np.array([probe.gradient_bytes for probe in probes]),
        )
        self.empty = codec.size_of(specs_of(Gradient(round=0)))
        model = timings[SERVER].compute
        self._server = Sampler(law(model), seed, SERVER, "compute.server_step")
        self._server_factors = np.array([_unit_seconds(model, probe.server) for probe in probes])
        self._further = Sampler(law(model), seed, SERVER, "compute.local_step")
        self._further_factors = np.array(
            [[_unit_seconds(model, operation) for operation in probe.further] for probe in probes]
        )

    def kind_of(self, rounds: Ints) -> Ints:
        """Return 0 where a round's batch is full, 1 where it is the last of an epoch."""
        kinds: Ints = (rounds % self.sequence.per_epoch == self.sequence.per_epoch - 1).astype(np.int64)
        return kinds

    def length(self, number: int) -> int:
        """Return the rows of the batch of round ``number``."""
        return self.sequence.length(number)

    def lengths(self, kinds: Ints) -> Ints:
        """Return the rows of batches of these kinds."""
        lengths: Ints = np.array([len(batch) for batch in self._batches])[kinds]
        return lengths

    def server_seconds(self, first: int, kinds: Ints) -> Floats:
        """Return the durations of server steps from round ``first`` on: of whole blocks, or of a part of one."""
        number, start = divmod(first, BLOCK)
        drawn = self._server.blocks(number, -(-len(kinds) // BLOCK))[start : start + len(kinds)]
        taken: Floats = drawn * self._server_factors[kinds]
        return taken

    def further_seconds(self, first: int, kinds: Ints) -> Floats:
        """Return the durations of the server's steps after those that end the rounds from ``first`` on (n, steps)."""
        each = self._further_factors.shape[1]
        start, count = first * each, len(kinds) * each
        number, offset = divmod(start, BLOCK)
        drawn = self._further.blocks(number, -(-(offset + count) // BLOCK))[offset : offset + count]
        taken: Floats = drawn.reshape(len(kinds), each) * self._further_factors[kinds]
        return taken

    def _local_steps(self, seed: int, timings: list[PartyTiming], probes: list[_Probe], alike: list[int]) -> LocalSteps:
        """Return the times of all steps that clients take in a round: draws, and factors (steps, 2, M)."""
        count = len(probes[0].steps)
        each = [self._work(seed, timings, "client_step", [p.steps[k] for p in probes], alike) for k in range(count)]
        return LocalSteps(each[0].draws, np.array([work.factors for work in each]))

    def _work(
        self,
        seed: int,
        timings: list[PartyTiming],
        kind: str,
        operations: list[dict[int, Operation[Any]]],
        alike: list[int],
    ) -> ComputeTimes:
        known: dict[tuple[int, int], int] = {}  # alike clients have the same draws' law and the same factors
        sorts = [
            known.setdefault((id(timing.compute), model), len(known))
            for timing, model in zip(timings, alike, strict=True)
        ]
        _, firsts = np.unique(sorts, return_index=True)
        factors = [
            np.array([_unit_seconds(timings[place].compute, each[alike[place]]) for place in firsts.tolist()])[sorts]
            for each in operations
        ]
        laws = [law(timings[place].compute) for place in firsts.tolist()]
        draws = _delays(seed, self.clients.tolist(), [laws[sort] for sort in sorts], f"compute.{kind}")
        return ComputeTimes(draws, np.array(factors))


def _unit_seconds(compute: AnyCompute, operation: Operation[Any]) -> float:
    """Return an operation's seconds for a draw of 1; with every compute model they are proportional to the draw."""
    return duration(compute, 1.0, operation)


class _Probe:
    """The operations and messages of one round on ``batch``, by the first client of each sort.

    They give sizes and FLOPs, and never run.
    """

    def __init__(
        self,
        acts: MakeActs,
        server: PartyLearner,
        clients: Mapping[int, PartyLearner],
        batch: Batch,
        codec: Codec,
        alike: list[int],
    ) -> None:
        firsts = [(place, client) for place, client in enumerate(clients) if alike[place] == place]
        made = {place: acts(server, clients, client, batch) for place, client in firsts}
        sizes = {place: _sizes(made[place], codec, client) for place, client in firsts}
        *_, last = made.values()
        self.server, self.further = last.serve, last.further
        self.embed = {place: each.embed for place, each in made.items()}
        self.steps = [{place: each.steps[k] for place, each in made.items()} for k in range(len(last.steps))]
        self.embedding_bytes, self.gradient_bytes = ([sizes[place][part] for place in alike] for part in (0, 1))


def _sizes(acts: Acts, codec: Codec, client: int) -> tuple[int, int]:
    """Return the bytes of the messages up and down."""
    up, down, there = codec.towards(SERVER), codec.towards(client), specs_of(acts.down)
    passed_on = {name: up for name in acts.passed_on if name in there}
    return up.size_of(specs_of(acts.up)), down.size_of(there, 0, passed_on) if passed_on else down.size_of(there)


def _rate(up: AnyCapacity, down: AnyCapacity) -> float:
    """Return the rate through two links of constant capacity."""
    assert isinstance(up, float | int)
    assert isinstance(down, float | int)
    return min(up, down)


def _delays(seed: int, clients: list[int], laws: Sequence[Delay], purpose: str) -> Stage:
    constants = np.array([law.value if isinstance(law, Constant) else np.nan for law in laws])
    sources: list[Source | None] = [None] * len(clients)
    for place in np.flatnonzero(np.isnan(constants)).tolist():
        sources[place] = Sampler(laws[place], seed, clients[place], purpose)
    return Stage(constants, sources)


def _latencies(links: Sequence[Link], matrix: LatencyMatrix | None, pairs: list[tuple[int, int]], seed: int) -> Stage:
    constants, sources = np.empty(len(pairs)), list[Source | None]([None]) * len(pairs)
    known: dict[tuple[int, int], float] = {}  # alike parties share a latency
    for place, (sender, receiver) in enumerate(pairs):
        key = id(links[sender].latency), id(links[receiver].latency)
        if matrix is None and key in known:
            constants[place] = known[key]
            continue
        fixed = 0.0 if matrix is None else matrix.seconds(sender, receiver)
        latency = Latency(links, sender, receiver, seed, fixed)
        if latency.constant is None:
            constants[place], sources[place] = np.nan, latency
        else:
            constants[place] = known[key] = latency.constant
    return Stage(constants, sources)
