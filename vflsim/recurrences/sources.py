"""Where draws and rates come from: laws of delays and latencies, compute models, links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vflsim.codecs import Codec
from vflsim.learning.execution.operations import Operation
from vflsim.recurrences.stages import Ints, Source, Stage
from vflsim.recurrences.timed import Draw, PeerWay
from vflsim.setting import Setting
from vflsim.timing.capacity import AnyCapacity, Link
from vflsim.timing.compute import AnyCompute, duration
from vflsim.timing.delays import Constant
from vflsim.timing.delays.base import Delay
from vflsim.timing.latency import LatencyMatrix
from vflsim.timing.sampler import Sampler
from vflsim.tracing.acts import Acts, ClientWork, InTurn, ServerWork, bytes_of
from vflsim.world.transfers import Latency


def unit_seconds(compute: AnyCompute, operation: Operation[Any]) -> float:
    """Return an operation's seconds for a draw of 1; with every compute model they are proportional to the draw."""
    return duration(compute, 1.0, operation)


def rate(up: AnyCapacity, down: AnyCapacity) -> float:
    """Return the rate through two links of constant capacity."""
    assert isinstance(up, float | int)
    assert isinstance(down, float | int)
    return min(up, down)


def delays(seed: int, parties: list[int], laws: Sequence[Delay], purpose: str) -> Stage:
    """Return the draws of each party's law for one purpose."""
    constants = np.array([law.value if isinstance(law, Constant) else np.nan for law in laws])
    sources: list[Source | None] = [None] * len(parties)
    for place in np.flatnonzero(np.isnan(constants)).tolist():
        sources[place] = Sampler(laws[place], seed, parties[place], purpose)
    return Stage(constants, sources)


def latencies(links: Sequence[Link], matrix: LatencyMatrix | None, pairs: list[tuple[int, int]], seed: int) -> Stage:
    """Return the latencies between pairs of parties."""
    constants, sources = np.empty(len(pairs)), list[Source | None]([None]) * len(pairs)
    known: dict[tuple[int, int], float] = {}  # alike parties share a latency
    for place, (sender, receiver) in enumerate(pairs):
        key = id(links[sender]), id(links[receiver])
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


# --- links between clients --------------------------------------------------------------------------------------------


class PeerLinks:
    """Receivers are of one sort if what any client sends reaches them in the same time (``PeerWay``)."""

    def __init__(self, setting: Setting, seed: int, clients: list[int]) -> None:
        self._links = [timing.link for timing in setting.timings]
        self._matrix, self._seed, self._clients = setting.network.latency, seed, clients
        self._sort = np.array(_sorts([self._links[client] for client in clients], self._matrix))
        self._firsts: list[int] = np.unique(self._sort, return_index=True)[1].tolist()

    def latencies(self) -> Stage:
        """Return the latencies from every client to each sort of its receivers, sort by sort."""
        clients, many = self._clients, len(self._clients)
        alone = np.bincount(self._sort) == 1
        pairs = [(client, clients[first]) for first in self._firsts for client in clients]
        stage = latencies(self._links, self._matrix, pairs, self._seed)
        return stage.without([sort * many + first for sort, first in enumerate(self._firsts) if alone[sort]])

    def way(self, latency: Draw, sizes: Ints) -> PeerWay:
        """Return the way of messages of ``sizes`` (kinds, M)."""
        links, sort = [self._links[client] for client in self._clients], self._sort
        rates = np.array([[rate(sender.up, links[first].down) for sender in links] for first in self._firsts])
        copies = np.bincount(sort)[:, None] - (sort == np.arange(len(self._firsts))[:, None])
        return PeerWay(latency, rates, copies, sort, sizes)


def _sorts(links: Sequence[Link], matrix: LatencyMatrix | None) -> list[int]:
    """Return the sort of every receiver, numbered from 0 in client order."""
    known: dict[object, int] = {}
    if matrix is None and all(isinstance(link.latency, Constant) for link in links):
        return [known.setdefault((link.latency, link.down), len(known)) for link in links]
    return list(range(len(links)))


class Probe:
    """The acts of one round on one batch, by the first client of each sort: ``by_place`` of the client.

    ``alike`` is the place of the first client of every client's sort.
    """

    def __init__(self, by_place: Mapping[int, Acts], alike: Sequence[int], codec: Codec) -> None:
        self.by_place, self.alike, self._codec = by_place, alike, codec
        *_, self.acts = by_place.values()

    def inner(self, number: int) -> Probe:
        """Return the acts that act ``number`` repeats for each client."""
        inner = {}
        for place, acts in self.by_place.items():
            act = acts[number]
            assert isinstance(act, InTurn)
            inner[place] = act.acts
        return Probe(inner, self.alike, self._codec)

    def operations(self, number: int) -> dict[int, Operation[Any]]:
        """Return the operations of act ``number`` by the place of the first client of a sort."""
        operations = {}
        for place, acts in self.by_place.items():
            act = acts[number]
            assert isinstance(act, ClientWork | ServerWork)
            operations[place] = act.operation
        return operations

    def sizes(self, number: int, clients: Sequence[int]) -> Ints:
        """Return the bytes of the messages of act ``number`` (M,)."""
        sizes = {place: bytes_of(acts[number], self._codec, clients[place]) for place, acts in self.by_place.items()}
        return np.array([sizes[place] for place in self.alike])
