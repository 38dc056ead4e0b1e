"""Where draws and rates come from: laws of delays and latencies, compute models, links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from vflsim.learning.execution.operations import Operation
from vflsim.recurrences.stages import Ints, Source, Stage
from vflsim.recurrences.timed_acts import Draw, PeerWay
from vflsim.setting import Setting
from vflsim.timing.capacity import AnyCapacity, LatencyMatrix, Link
from vflsim.timing.compute import AnyCompute, duration
from vflsim.timing.delays import Constant
from vflsim.timing.delays.base import Delay
from vflsim.timing.sampler import Sampler
from vflsim.tracing.node import Untraceable
from vflsim.world.transfers import Latency

_Part = TypeVar("_Part")
_Fact = TypeVar("_Fact")


def once_each(fact: Callable[[_Part], _Fact], parts: Sequence[_Part]) -> list[_Fact]:
    """Return a fact of every part, found once for those that are the same object: of a million clients there are few.

    Example: ``once_each(law, computes)``
    """
    facts = {key: fact(part) for key, part in {id(part): part for part in parts}.items()}
    return [facts[id(part)] for part in parts]


def unit_seconds(compute: AnyCompute, operation: Operation[Any]) -> float:
    """Return an operation's seconds for a draw of 1; with every compute model they are proportional to the draw."""
    return duration(compute, 1.0, operation)


def rate(up: AnyCapacity, down: AnyCapacity) -> float:
    """Return the rate through two links. Raises ``Untraceable`` if one changes its rate in time."""
    if isinstance(up, float | int) and isinstance(down, float | int):
        return min(up, down)
    raise Untraceable("a link changes its rate in time")


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
