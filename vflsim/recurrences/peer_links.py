"""The links between clients: what a message of every client to each other client takes, by sorts of receivers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vflsim.recurrences.sources import latencies, rate
from vflsim.recurrences.stages import Ints, Stage
from vflsim.recurrences.timed import Draw, PeerWay
from vflsim.setting import Setting
from vflsim.timing.delays import Constant
from vflsim.timing.latency import LatencyMatrix
from vflsim.timing.link import Link


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
