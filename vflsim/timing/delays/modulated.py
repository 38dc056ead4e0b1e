"""Bursts: delays whose law changes with the state of a Markov chain in continuous time."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

import numpy as np
from pydantic import Field
from typing_extensions import override

from vflsim.errors import RunError
from vflsim.streams import BLOCK, Uniforms, party_name
from vflsim.timing.delays.base import Delay, Derived, Regimes, sympy
from vflsim.timing.delays.composite import Mixture
from vflsim.timing.floats import Floats
from vflsim.vocabulary import Fraction01, Part, PositiveSeconds

if TYPE_CHECKING:
    from vflsim.timing.delays import AnyDelay

MAX_CHANGES = 10_000_000
_SUM_TOLERANCE = 1e-9


@final
class State(Part):
    """A state of the chain: how long it lasts, and the delays that begin in it.

    Example: ``{sojourn: 5 s, delay: {kind: exponential, mean: 1 s}}``
    """

    sojourn: PositiveSeconds
    """Mean time in the state (exponentially distributed)."""
    delay: AnyDelay
    """The delay of activities that begin in this state."""


@final
class MarkovModulated(Derived):
    """Bursts: the delay follows the law of a Markov chain's state at the instant when its activity begins.

    The states follow one another in continuous time, from the stationary distribution on; the path is a function of
    (seed, party, role, time) alone. As a distribution, the delay is that of an activity which begins at an arbitrary
    instant: the mixture of the states by their shares of time.

    Example: ``{kind: markov_modulated, states: [{sojourn: 60 s, delay: 20 ms}, {sojourn: 5 s, delay: 1 s}],
    transitions: [[0, 1], [1, 0]]}``
    """

    in_time: ClassVar[bool] = True

    kind: Literal["markov_modulated"] = "markov_modulated"
    states: Annotated[tuple[State, ...], Field(min_length=2, max_length=32)]
    """The states of the chain."""
    transitions: tuple[tuple[Fraction01, ...], ...] | None = None
    """Row by row the probabilities of the next state (0 on the diagonal); by default, all others are equally likely."""

    @override
    def _check(self) -> None:
        count = len(self.states)
        for state in self.states:
            if state.delay.in_time:
                raise ValueError("bursts within bursts; allowed: states with a delay of any other kind")
        if self.transitions is None:
            self.law  # noqa: B018  its own checks
            return
        if [len(row) for row in self.transitions] != [count] * count:
            raise ValueError(f"transitions of another shape; allowed: {count} rows of {count} probabilities")
        for number, row in enumerate(self.transitions):
            if row[number] != 0:
                raise ValueError(f"state {number + 1} is followed by itself; allowed: 0 on the diagonal")
            if abs(math.fsum(row) - 1) > _SUM_TOLERANCE:
                raise ValueError(f"row {number + 1} of the transitions sums to {math.fsum(row):.10g}; allowed: 1")
        from scipy.sparse.csgraph import connected_components  # slow to import, and rarely needed

        if connected_components(self._jumps, connection="strong")[0] != 1:
            raise ValueError("some states are never left or never come again; allowed: every state leads to every one")

    @property
    @override
    def uniforms(self) -> int:
        return max(state.delay.uniforms for state in self.states)

    @override
    def regimes(self, seed: int, party: int, role: str) -> Regimes:
        return StatePath(self, seed, party, role)

    @property
    @override
    def cycle_s(self) -> float:
        """The mean time (s) between visits to the rarest state: the sum of the sojourns, if all are as likely."""
        sojourns = np.array([state.sojourn for state in self.states])
        present = self.shares > 0
        return float((sojourns[present] / self.shares[present]).max())

    @cached_property
    def _jumps(self) -> Floats:
        """Probabilities of the next state, row by row."""
        count = len(self.states)
        if self.transitions is None:
            return (1 - np.eye(count)) / (count - 1)
        rows = np.array(self.transitions)
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))

    @cached_property
    def shares(self) -> Floats:
        """The share of time in each state."""
        count = len(self.states)
        balance = np.vstack([self._jumps.T - np.eye(count), np.ones(count)])
        visits = np.linalg.lstsq(balance, np.append(np.zeros(count), 1.0), rcond=None)[0]
        time = np.maximum(visits, 0.0) * [state.sojourn for state in self.states]
        return np.asarray(time / time.sum())

    @cached_property
    @override
    def law(self) -> Mixture:
        return Mixture(weights=tuple(self.shares.tolist()), parts=tuple(state.delay for state in self.states))

    @override
    def sympy(self, x: sympy.Symbol) -> sympy.Expr:
        return self.law.sympy(x)

    @override
    def sample(self, u: Floats) -> Floats:
        return self.inverse_cdf(u if self.uniforms == 1 else u[..., 0])


class StatePath:
    """The states of one party in one role, a function of (seed, party, role, time).

    Keyed by the stream ``<role>.states``: pair 0 of its uniforms chooses the first state, pair k the length of the k-th
    stay and the state after it. Only the stay at hand is kept; going back in time starts over.
    """

    def __init__(self, chain: MarkovModulated, seed: int, party: int, role: str) -> None:
        self._laws = [state.delay for state in chain.states]
        self._sojourns = [state.sojourn for state in chain.states]
        self._first = np.cumsum(chain.shares)[:-1]
        self._next = np.cumsum(chain._jumps, axis=1)[:, :-1]
        self._uniforms = Uniforms(seed, party, f"{role}.states")
        self._name = f"{party_name(party)}, {role}"
        self._restart()

    def law(self, now: float) -> tuple[int, Delay]:
        """Give number and law of the state at ``now`` seconds; at a change it is the new one.

        Raises RunError if the state changes more than ten million times between two questions.
        """
        if now < self._start:
            self._restart()
        for _ in range(MAX_CHANGES):
            if now < self._end:
                return self._state, self._laws[self._state]
            self._step(self._after)
        raise RunError(
            f"the state of a markov_modulated delay changes more than {MAX_CHANGES:,} times between two draws",
            self._name,
            "sojourns that are not so much shorter than the run",
        )

    def _restart(self) -> None:
        self._number, self._block = 0, -1
        self._start = self._end = 0.0
        _, choice = self._pair()
        self._step(int(np.searchsorted(self._first, choice, side="right")))

    def _step(self, state: int) -> None:
        """Enter a state: draw how long it lasts and what comes after it."""
        length, choice = self._pair()
        self._state, self._start = state, self._end
        self._end -= self._sojourns[state] * math.log1p(-length)
        self._after = int(np.searchsorted(self._next[state], choice, side="right"))

    def _pair(self) -> tuple[float, float]:
        block, offset = divmod(self._number, BLOCK)
        if block != self._block:
            self._block, self._pairs = block, self._uniforms.block(block, 2).tolist()
        self._number += 1
        first, second = self._pairs[offset]
        return first, second
