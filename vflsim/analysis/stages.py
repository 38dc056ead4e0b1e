"""Cycles of constants and exponential stages: steps on t of M clients, 2t ≥ M, are nearly a Markov chain.

A server sees only when embeddings arrive, so a client may as well spend its constants first, then its stages. Where no
message waits and all constants are c, a client is in one of its stages or waits for a step. With 2t > M each step needs
a client of the step before, so none begins within c after it, and c is part of the server's step: the chain is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vflsim.timing.floats import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Places = NDArray[np.intp]


@dataclass(frozen=True)
class StageChain:
    """Clients in exponential stages of these ``rates`` (1/s), one after the other, and a server that takes t of them.

    ``step``: the constant seconds (> 0) in which the server, and with it the clients that it uses, do nothing else.
    A client's place is the number of stages behind it; all behind it, it waits. Arrays have an entry for each
    combination of places, in C order. 2t ≥ M: no more than t ever wait when a step ends, so that order does not matter.
    """

    rates: tuple[tuple[float, ...], ...]
    t: int
    step: float

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of places of each client."""
        return tuple(len(each) + 1 for each in self.rates)

    @cached_property
    def places(self) -> Places:
        """Each client's place in each combination, (M, states)."""
        return np.indices(self.shape).reshape(len(self.rates), -1)

    @cached_property
    def waiting(self) -> Places:
        """The number of clients that wait, (states,)."""
        last = np.array(self.shape)[:, None] - 1
        return np.asarray((self.places == last).sum(axis=0))

    @cached_property
    def after(self) -> list[Floats]:
        """Each client's probabilities of places after a step, by that before; one that waits is used, and begins."""
        from scipy.linalg import expm

        found = []
        for rates in self.rates:
            generator = np.diag([-rate for rate in (*rates, 0.0)]) + np.diag(rates, 1)
            moves = expm(generator * self.step)
            moves[-1] = np.eye(len(moves))[0]
            found.append(moves)
        return found

    @cached_property
    def _gathering(self) -> list[tuple[Places, csr_matrix, Floats]]:
        """Of combinations with fewer than t that wait, last ones first: the next one's chances, and the mean stay."""
        from scipy.sparse import csr_matrix

        clients, states = self.places.shape
        behind = self.places.sum(axis=0)
        leaps = [int(np.prod(self.shape[client + 1 :])) for client in range(clients)]
        rates = np.array([np.array([*own, 0.0])[at] for own, at in zip(self.rates, self.places, strict=True)])
        found = []
        for level in range(int(behind.max()), -1, -1):
            here = np.flatnonzero((behind == level) & (self.waiting < self.t))
            whole = rates[:, here].sum(axis=0)
            who, row = np.nonzero(rates[:, here])
            chances = rates[who, here[row]] / whole[row]
            following = here[row] + np.array(leaps)[who]
            found.append((here, csr_matrix((chances, (row, following)), shape=(len(here), states)), 1 / whole))
        return [each for each in found if len(each[0])]

    def round(self, later: Floats) -> Floats:
        """Give the mean time from a step's end to the next one's plus ``later`` then, (states,); 0 if over t wait."""
        value = later.reshape(self.shape)
        for client, moves in enumerate(self.after):
            value = np.moveaxis(np.tensordot(moves, value, axes=(1, client)), 0, client)
        whole = np.where(self.waiting == self.t, value.reshape(-1) + self.step, 0.0)
        for here, chances, stay in self._gathering:
            whole[here] = chances @ whole + stay
        return whole

    @cached_property
    def solution(self) -> tuple[float, float, Floats]:
        """Bounds of the mean round, and the relative value of each combination at the end of a step, (states,).

        Value iteration; the least and the greatest increase bound the mean (Odoni 1969, On finding the maximal gain
        for Markov decision processes, Operations Research 17: 857–860): wide if it has not converged.
        """
        ends = self.waiting <= min(self.t, len(self.rates) - self.t)
        value = np.zeros(len(ends))
        low = high = 0.0
        for _ in range(max(1, _MOST_WORK // len(ends))):
            new = self.round(value)
            more = (new - value)[ends]
            low, high = float(more.min()), float(more.max())
            value = np.where(ends, new - new[0], 0.0)
            if high - low <= _PRECISION * high:
                break
        return low, high, value

    def gains(self, client: int) -> list[tuple[float, float]]:
        """Bound the seconds by which the end of each of a client's stages brings the next step nearer.

        Over all combinations in which the server has nothing to do.
        """
        whole = np.moveaxis(self.round(self.solution[2]).reshape(self.shape), client, 0)
        idle = np.moveaxis((self.waiting < self.t).reshape(self.shape), client, 0)
        gains = [(whole[stage] - whole[stage + 1])[idle[stage]] for stage in range(len(whole) - 1)]
        return [(float(gain.min()), float(gain.max())) for gain in gains]


_MOST_WORK = 20_000_000
"""The most combinations times sweeps: a second or two."""
_PRECISION = 1e-7
"""Relative, of the mean round."""
