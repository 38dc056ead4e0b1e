"""Where draws and rates come from: laws of delays and latencies, compute models, links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vflsim.learning.execution.operations import Operation
from vflsim.recurrences.stages import Source, Stage
from vflsim.timing.capacity import AnyCapacity
from vflsim.timing.compute import AnyCompute, duration
from vflsim.timing.delays import Constant
from vflsim.timing.delays.base import Delay
from vflsim.timing.latency import LatencyMatrix
from vflsim.timing.link import Link
from vflsim.timing.sampler import Sampler
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
