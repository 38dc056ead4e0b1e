"""Rounds of a protocol, drawn with numpy from the delays of its clients' stages: a witness of closed forms.

Of worlds in which no message waits for a link, and no share is under way for any time. ``RUNS`` independent runs, so
that means have Student's intervals, whatever depends on what within a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.stages import Turn
from vflsim.protocols.fedvs.stages import CodedStages
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.delays.sums import SumLaw
from vflsim.timing.laws.law import Law, Point

RUNS = 20
LEVEL = 0.999
Z = float(stats.t.ppf(1 - (1 - LEVEL) / 2, RUNS - 1))
Floats = np.ndarray


@dataclass(frozen=True)
class Rounds:
    """Durations (runs, rounds), which clients each round has used (runs, rounds, clients), and what else is known.

    Of t-synchronous rounds, how long those of ``everybody`` are; of coded ones their parts, and the time of sharing the
    data ``once``.
    """

    seconds: Floats
    used: Floats | None = None
    everybody: Floats | None = None
    barrier: Floats | None = None
    upload: Floats | None = None
    once: Floats | None = None


def half_width(values: Floats) -> float:
    """Half the 99.9 % interval of the mean of values (runs, …)."""
    means = values.reshape(RUNS, -1).mean(axis=1)
    return float(Z * means.std(ddof=1) / np.sqrt(RUNS))


def drawn(law: Law, size: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Times of a law, from the draws of the delays that it is made of."""
    if isinstance(law, Point):
        return np.full(size, law.value)
    if isinstance(law, OfDelay):
        uniforms = size if law.delay.uniforms == 1 else (*size, law.delay.uniforms)
        return law.shift + law.scale * law.delay.sample(rng.random(uniforms))
    assert isinstance(law, SumLaw), law
    return law.constant + sum(drawn(part, size, rng) for part in law.parts)


class Stock:
    """Draws of each client and turn, made many at a time and used one by one."""

    def __init__(self, cycles: Cycles, rng: np.random.Generator) -> None:
        self._cycles, self._rng = cycles, rng
        self.shares = [turn.share for turn in cycles.turns]

    def cycles(self, count: int) -> Floats:
        """(RUNS, count, clients): each with a turn of its own."""
        size = RUNS, count
        return np.stack(
            [
                self._of(size, [self._cycles.cycles(turn)[place] for turn in self._cycles.turns])
                for place in range(len(self._cycles.clients))
            ],
            axis=-1,
        )

    def services(self, count: int) -> Floats:
        """(RUNS, count)."""
        return self._of((RUNS, count), [self._cycles.service(turn.now) for turn in self._cycles.turns])

    def rounds(self, count: int) -> tuple[Floats, Floats]:
        """Cycles (RUNS, count, clients) and services (RUNS, count) of rounds that have one turn for everybody."""
        turns, which = self._cycles.turns, self._which((RUNS, count))
        cycles, services = np.zeros((RUNS, count, len(self._cycles.clients))), np.zeros((RUNS, count))
        for number, turn in enumerate(turns):
            here = which == number
            size = (int(here.sum()),)
            services[here] = drawn(self._cycles.service(turn.now), size, self._rng)
            for place, law in enumerate(self._cycles.cycles(turn)):
                cycles[here, place] = drawn(law, size, self._rng)
        return cycles, services

    def _which(self, size: tuple[int, ...]) -> Floats:
        return self._rng.choice(len(self.shares), size, p=self.shares)

    def _of(self, size: tuple[int, ...], laws: list[Law]) -> Floats:
        which = self._which(size)
        return np.choose(which, [drawn(law, size, self._rng) for law in laws])


def starting_afresh(cycles: Cycles, t: int, count: int, rng: np.random.Generator) -> Rounds:
    """Every client begins anew with each server step, which takes the t first (ties: in order; t = 0: none)."""
    if t == 0:  # clients take no time, and their delays may have no law
        return Rounds(Stock(cycles, rng).services(count))
    times, services = Stock(cycles, rng).rounds(count)
    order = np.argsort(times, axis=-1, kind="stable")
    used = np.zeros(times.shape, bool)
    np.put_along_axis(used, order[..., :t], values=True, axis=-1)
    last = np.take_along_axis(times, order[..., t - 1 : t], axis=-1)[..., 0]
    return Rounds(last + services, used, times.max(axis=-1) + services)


def own_pace(cycles: Cycles, t: int, count: int, rng: np.random.Generator) -> Rounds:
    """Late clients arrive later, and wait while the server is busy; a quarter of the steps is warm-up.

    Every run begins with phases of its own: some clocks take very long to forget when they began.
    """
    warm_up = count // 4
    steps, many = count + warm_up, len(cycles.clients)
    stock = Stock(cycles, rng)
    times, services = stock.cycles(steps + 1), stock.services(steps)
    ready, now = times[:, 0] + rng.uniform(0, 2 * times[:, 0].sum(axis=-1, keepdims=True), (RUNS, many)), np.zeros(RUNS)
    ends, used = np.empty((RUNS, steps)), np.zeros((RUNS, steps, many), bool)
    for step in range(steps):
        first = np.argsort(ready, axis=-1, kind="stable")[:, :t]
        last = np.take_along_axis(ready, first[:, -1:], axis=-1)[:, 0]
        now = np.maximum(now, last) + services[:, step]
        ends[:, step] = now
        np.put_along_axis(used[:, step], first, values=True, axis=-1)
        again = now[:, None] + np.take_along_axis(times[:, step + 1], first, axis=-1)
        np.put_along_axis(ready, first, again, axis=-1)
    return Rounds(np.diff(ends, axis=1)[:, warm_up - 1 :], used[:, warm_up:])


def coded(stages: CodedStages, count: int, rng: np.random.Generator) -> Rounds:
    """A barrier of shares, the R-th upload, and a server step; late uploads are dropped."""
    which = rng.choice(len(stages.turns), (RUNS, count), p=[turn.share for turn in stages.turns])
    barrier, upload, step = np.zeros(which.shape), np.zeros(which.shape), np.zeros(which.shape)
    for number, turn in enumerate(stages.turns):
        here = which == number
        size = (int(here.sum()),)

        def answers(turn: Turn, size: tuple[int, ...] = size) -> Floats:
            return np.stack([drawn(stages.answering(client, turn), size, rng) for client in stages.clients])

        def fastest(uploads: Floats) -> Floats:
            return np.asarray(np.sort(uploads, axis=0)[stages.plan.threshold - 1])

        shares = np.stack([drawn(stages.sharing(client, turn), size, rng) for client in stages.clients])
        barrier[here], upload[here] = shares.max(axis=0), fastest(answers(turn))
        step[here] = drawn(stages.stepping(turn), size, rng)
    once = np.stack([drawn(stages.data_sharing(client), which.shape, rng) for client in stages.clients]).max(axis=0)
    return Rounds(barrier + upload + step, None, None, barrier, upload, once)
