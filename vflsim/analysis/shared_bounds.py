"""Bounds of the mean round of alike clients whose messages share links equally, by linear programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from vflsim.analysis.pace import Pace
from vflsim.analysis.renewal import exponential_rate
from vflsim.analysis.shared_states import DOWN, STEPS, UP, SharedLinks, State
from vflsim.timing.delays import Exponential, Uniform
from vflsim.timing.floats import Floats
from vflsim.timing.law import Law, Point


def shared_round(pace: Pace) -> tuple[float, float]:
    """Give bounds of the mean round (s), from below and from above; 0 and inf where the programs do not apply.

    They apply to alike clients in exponential stages, with constants and one uniform time on either way, to constant
    steps, and to links of the server that all divide equally.
    """
    network = network_of(pace)
    if network is None:
        return 0.0, math.inf
    low, high = most_steps(network)
    return 1 / high if math.isfinite(high) else 0.0, 1 / low if low > 0 else math.inf


def network_of(pace: Pace) -> SharedLinks | None:
    """Give the network of a linear program of a feasible size; None if there is none."""
    if (
        pace.clients > _MOST_CLIENTS
        or pace.shared is None
        or not pace.constant_step
        or not 0 < pace.shortest_step == pace.longest_step
    ):
        return None
    cycles, turns = pace.cycles, pace.cycles.turns
    ups = {tuple(cycles.own_part(client, turn)[:-1]) for client in cycles.clients for turn in turns}
    downs = {tuple(cycles.downlink(client, turn.before)[:-1]) for client in cycles.clients for turn in turns}
    if len(ups) != 1 or len(downs) != 1:
        return None
    up, down = _parts(ups.pop()), _parts(downs.pop())
    if up is None or down is None or not up[0] or down[0]:
        return None
    most = [max(cycles.transfers(client, turn)[way] for client in cycles.clients for turn in turns) for way in (0, 1)]
    away = max((span[1] for span in (up[1], down[1]) if span is not None), default=0.0)
    found = None
    for degree in range(1, _MOST_DEGREES):  # the longest times count most
        more = SharedLinks(
            pace.clients, pace.t, up[0], pace.shortest_step, most[1], most[0],
            (most[1] - pace.shared[1], most[0] - pace.shared[0]), up[1], down[1],
            (degree, 1) if away > max(most) else (1, degree),
        )  # fmt: skip
        size = more.size(0) * more.size(1)
        quick = pace.t > 1 and not (any(more.shorter) or up[1] or down[1])
        if size * (2 if any(more.shorter) else 1) > _MOST_NUMBERS * (6 if quick else 1):
            break
        found = more
    return found


def _parts(laws: tuple[Law, ...]) -> tuple[tuple[float, ...], tuple[float, float] | None] | None:
    """Return the rates of exponential parts, and the least and the greatest sum of the others; None if unknown."""
    rates, spans = [], list[tuple[float, float]]()
    constant = 0.0
    for part in (part for law in laws for part in law.summands()):
        rate = 1 / part.mean if isinstance(part, Exponential) else exponential_rate(part)
        if isinstance(part, Point):
            constant += part.value
        elif rate is not None:
            rates.append(rate)
        elif isinstance(getattr(part, "delay", part), Uniform):
            spans.append(part.support)
        else:
            return None
    if len(spans) > 1:
        return None
    low, high = spans[0] if spans else (0.0, 0.0)
    return tuple(rates), (constant + low, constant + high) if constant + high > 0 else None


def most_steps(network: SharedLinks) -> tuple[float, float]:
    """Give bounds of the server's steps per second, from below and from above; nan where a program has no solution.

    If the mean change per second of a function h of the state is at most g less what h gains by steps, 1 each, there
    are no more than g steps per second in the long run (Dynkin's formula). One linear program finds the h of the least
    g, another, with the opposite inequalities, that of the greatest: as Bertsimas, Paschalidis and Tsitsiklis (1994,
    Annals of Applied Probability 4: 43–75) bound networks of exponential times. Shorter messages than the longest
    enter a link with less to go, which adds no more to h than its greatest slope says. What is returned holds for the
    h that was found, whatever the solver's tolerance.
    """
    columns: dict[State | str, int] = {UP: 0, DOWN: 1}
    rows = [(network.change(at), "") for at in network.points()]
    if any(network.shorter):
        rows += [(terms, link) for at in network.points() for link, terms in network.shortened(at)]
    entries = [
        (row, columns.setdefault(key, len(columns)), weight)
        for row, (terms, _) in enumerate(rows)
        for key, weight in terms.items()
        if key != STEPS
    ]
    program = StepProgram(
        entries, len(columns), np.array([terms.get(STEPS, 0.0) for terms, _ in rows]),
        {columns[link]: [row for row, (_, of) in enumerate(rows) if of == link] for link in (UP, DOWN)},
        [row for row, (_, of) in enumerate(rows) if not of],
    )  # fmt: skip
    return program.solved(-1), program.solved(1)


@dataclass(frozen=True)
class StepProgram:
    """Find x with entries · x + steps ≤ g in some rows, of the least g, and ≤ x_link in others, by link."""

    entries: list[tuple[int, int, float]]
    columns: int
    steps: Floats
    links: dict[int, list[int]]
    rows: list[int]

    def solved(self, sign: int) -> float:
        """Give the least g for sign 1; for sign −1 the greatest, with ≥ instead of ≤. Holds for what was found."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix

        shape = (len(self.steps), self.columns + 1)
        less = [(row, column) for column, rows in self.links.items() for row in rows]
        less += [(row, self.columns) for row in self.rows]
        row, column = np.array([each[:2] for each in self.entries]).T
        change = csr_matrix(([each[2] for each in self.entries], (row, column)), shape=shape)
        bound = csr_matrix((np.ones(len(less)), np.array(less).T), shape=shape)
        goal = np.zeros(shape[1])
        goal[-1] = sign
        matrix: Any = sign * (change - bound)  # scipy takes sparse ones, its types do not say so
        found = linprog(goal, A_ub=matrix, b_ub=-sign * self.steps, bounds=(None, None), method="highs-ipm")
        if found.status != 0:
            return sign * math.inf
        x = np.array(found.x)
        for link, of in self.links.items():
            if of:
                x[link] += sign * max(0.0, float((sign * (change @ x + self.steps - x[link]))[of].max()))
        return sign * float((sign * (change @ x + self.steps))[self.rows].max())


_MOST_CLIENTS, _MOST_DEGREES = 50, 9
_MOST_NUMBERS = 6_000_000
"""The most unknowns times inequalities: a second or two. Programs of one size of messages and t > 1 are quicker."""
