"""Random closed networks of clients and a server, as their laws and as a simulation of their queues, event by event.

The simulation is a witness of bounds that has nothing of vflsim but the sampling of delays. It returns mean waits. The
rates that follow from them and from the known mean cycles are far closer than rates that are counted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from vflsim.analysis.cycles import Turn
from vflsim.timing.affine import OfDelay
from vflsim.timing.delays import Exponential, Gamma, Uniform
from vflsim.timing.law import Law, Point
from vflsim.timing.sums import total

RUNS = 8
LEVEL = 1e-5
"""The probability that the mean of runs is further from the truth than ``half_width`` says."""
Z = float(stats.t.ppf(1 - LEVEL / 2, RUNS - 1))
JOINS, ARRIVES, STEPPED, LEAVES = range(4)


@dataclass(frozen=True)
class Stations:
    """Clients with private random times, latencies and transfers (s); ``queued``: transfers wait for each other.

    It has what bounds ask of ``Cycles``.
    """

    t: int
    step: float
    private: list[list[Law]]
    latency_down: list[float]
    latency_up: list[float]
    down: list[float]
    up: list[float]
    links_wait: bool
    turns: tuple[Turn, ...] = (Turn(1.0, 1, 1),)
    queued: bool = True
    clients: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clients.extend(range(1, len(self.private) + 1))

    def cycle(self, client: int, _turn: Turn) -> Law:
        place = client - 1
        ways = self.latency_down[place] + self.down[place] + self.latency_up[place] + self.up[place]
        return total([Point(ways), *self.private[place]])

    def own_part(self, client: int, _turn: Turn) -> list[Law]:
        return [*self.private[client - 1], Point(self.latency_up[client - 1] + self.up[client - 1])]

    def service(self, _rows: int) -> Law:
        return Point(self.step)

    def longest_waits(self, _turn: Turn) -> list[float]:
        if not self.links_wait:
            return [0.0] * len(self.clients)
        whole = math.fsum(self.down) + math.fsum(self.up)
        return [whole - down - up for down, up in zip(self.down, self.up, strict=True)]

    def transfers(self, client: int, _turn: Turn) -> tuple[float, float]:
        return self.down[client - 1], self.up[client - 1]

    occupied = transfers

    def in_order(self) -> bool:
        return len(set(self.latency_down)) == 1


def drawn(rng: np.random.Generator, *, alike: bool | None = None) -> Stations:
    """A network of 2 to 6 clients at any load; ``alike``: equal transfers and latencies."""
    many = int(rng.integers(2, 7))
    same = bool(rng.random() < 0.5) if alike is None else alike
    pool = [_private(rng) for _ in range(int(rng.integers(1, 4)))]
    load = float(np.exp(rng.uniform(np.log(0.002), np.log(0.3))))

    def each(values: Callable[[], float]) -> list[float]:
        return [values()] * many if same else [values() for _ in range(many)]

    def size() -> float:
        return load * float(rng.choice([0.2, 0.5, 1.0]))

    def latency() -> float:
        return float(rng.choice([0, 0.005, 0.05]))

    return Stations(
        t=int(rng.integers(1, many)) if rng.random() < 0.6 else 1,
        step=size() * float(rng.choice([0.0001, 1])),
        private=[[*pool[rng.integers(len(pool))], Point(float(rng.choice([0, 0.05])))] for _ in range(many)],
        latency_down=each(latency),
        latency_up=[latency() for _ in range(many)],
        down=each(size),
        up=each(size),
        links_wait=bool(rng.random() < 0.75),
    )


def _private(rng: np.random.Generator) -> list[Law]:
    mean = float(np.exp(rng.uniform(np.log(0.02), np.log(2))))
    exponential = OfDelay(Exponential(mean=mean))
    kinds: list[list[Law]] = [
        [exponential],
        [exponential],
        [OfDelay(Exponential(mean=mean / 2))] * 2,
        [OfDelay(Gamma(shape=2.0, mean=mean))],
        [OfDelay(Uniform(low=0, high=2 * mean))],
        [exponential, OfDelay(Uniform(low=0, high=mean / 2))],
    ]
    return kinds[rng.integers(len(kinds))]


def mean_rounds(world: Stations, steps: int, rng: np.random.Generator) -> np.ndarray:
    """The mean round of each of ``RUNS`` simulations, (RUNS,): t / Σ 1 / (mean cycle + step + mean wait)."""
    cycles = [world.cycle(client, world.turns[0]).expectation() + world.step for client in world.clients]
    waits = [simulated_waits(world, steps, rng) for _ in range(RUNS)]
    return np.array([world.t / sum(1 / (c + w) for c, w in zip(cycles, each, strict=True)) for each in waits])


def half_width(values: np.ndarray) -> float:
    """Half the interval of the mean of ``RUNS`` values."""
    return float(Z * values.std(ddof=1) / np.sqrt(RUNS)) + 1e-9


def simulated_waits(world: Stations, steps: int, rng: np.random.Generator) -> list[float]:
    """The mean wait in a client's cycle, of each client: what a cycle takes beyond its own times and the step."""
    many, events, number = len(world.clients), list[tuple[float, int, int, int]](), 0
    stock: list[list[float]] = [[] for _ in range(many)]
    link_up = link_down = 0.0
    waiting, batch, busy, done = list[int](), list[int](), False, 0
    began: list[float | None] = [None] * many
    plain, waited, cycles = [0.0] * many, [0.0] * many, [0] * many

    def draw(client: int) -> float:
        if not stock[client]:
            stock[client] = _many(world.private[client], rng)
        return stock[client].pop()

    def push(now: float, kind: int, client: int) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (now, kind, number, client))

    for client in range(many):
        push(draw(client) + rng.uniform(0, sum(world.up)), JOINS, client)
    while done < steps:
        now, kind, _, client = heapq.heappop(events)
        if kind == JOINS:
            link_up = max(link_up, now) + world.up[client]
            push(link_up if world.links_wait else now + world.up[client], ARRIVES, client)
        elif kind == ARRIVES:
            waiting.append(client)
        elif kind == STEPPED:
            busy, done = False, done + 1
            for used in batch:
                start = began[used]
                if start is not None and done > steps // 10:
                    waited[used] += now - start - plain[used]
                    cycles[used] += 1
                began[used] = now
                push(now + world.latency_down[used], LEAVES, used)
        else:
            link_down = max(link_down, now) + world.down[client]
            end = link_down if world.links_wait else now + world.down[client]
            own = draw(client) + world.latency_up[client]
            plain[client] = world.latency_down[client] + world.down[client] + own + world.up[client] + world.step
            push(end + own, JOINS, client)
        if not busy and len(waiting) >= world.t:
            batch, waiting, busy = waiting[: world.t], waiting[world.t :], True
            push(now + world.step, STEPPED, -1)
    return [wait / max(1, count) for wait, count in zip(waited, cycles, strict=True)]


def _many(laws: list[Law], rng: np.random.Generator) -> list[float]:
    times = np.zeros(1_000)
    for law in laws:
        if isinstance(law, OfDelay):
            times += law.shift + law.scale * law.delay.sample(rng.random(len(times)))
        else:
            times += law.expectation()
    return list(times.tolist())
