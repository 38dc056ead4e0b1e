"""The acts of a round with their times for every client: draws, seconds per unit drawn, sizes and rates.

Arrays (kinds, M) are for M clients; each row is for a batch of another size, mostly the first for a full batch and the
second for the last batch of an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from vflsim.recurrences.chunk import Bools
from vflsim.recurrences.stages import Ints, Stage
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import Activated, ClientSleep, ClientsWait, Late, ServerWaits


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The draws of one ``purpose``, of which each round takes ``each``, after ``skipped`` before the first round."""

    stage: Stage
    each: int
    skipped: int
    purpose: str

    def rows(self, first: int, count: int) -> Floats:
        """Return the draws of rounds ``first`` up to ``first + count``, (count, each, columns)."""
        drawn = self.stage.rows(self.skipped + first * self.each, count * self.each)
        return drawn.reshape(count, self.each, drawn.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class UnlikeSeries(Series):
    """The draws of one purpose, of which each client takes ``own`` (M,) in a round, ``each`` at most."""

    own: Ints
    parts: tuple[tuple[Ints, Series], ...]
    """The clients that take equally many, at least one, and their series."""

    @classmethod
    def of(cls, stage: Stage, counts: Ints, skipped: int, purpose: str) -> UnlikeSeries:
        """Make the series of draws of a stage, of which each client takes ``counts`` (M,) in a round."""
        alike = [(each, np.flatnonzero(counts == each)) for each in np.unique(counts).tolist() if each]
        parts = tuple((whose, Series(stage.only(whose.tolist()), each, skipped, purpose)) for each, whose in alike)
        return cls(stage, int(counts.max()), skipped, purpose, counts, parts)

    def rows(self, first: int, count: int) -> Floats:
        """Return the draws of these rounds (count, each, M), 0 where a client takes none."""
        drawn = np.zeros((count, self.each, len(self.own)))
        for whose, series in self.parts:
            drawn[:, : series.each, whose] = series.rows(first, count)
        return drawn


@dataclass(frozen=True, slots=True)
class Draw:
    """Number ``place`` of the draws that each round takes from a series."""

    series: Series
    place: int

    def of(self, drawn: Floats) -> Floats:
        """Return it from all draws of the series (n, each, columns), (n, columns)."""
        return drawn[:, self.place]

    def numbers(self, rounds: Ints) -> Ints:
        """Return its number among all draws of the series in these rounds (n,): (n, 1), or (n, M)."""
        return self.series.skipped + rounds[:, None] * self.series.each + self.place


@dataclass(frozen=True, slots=True, eq=False)
class UnlikeDraw(Draw):
    """Of the draws that each client takes in a round from a series, another one: ``places`` (M,)."""

    places: Ints

    def of(self, drawn: Floats) -> Floats:
        """Return it from all draws of the series (n, each, M), (n, M)."""
        there = np.minimum(self.places, drawn.shape[1] - 1)
        return drawn[:, there, np.arange(len(there))]

    @override
    def numbers(self, rounds: Ints) -> Ints:
        assert isinstance(self.series, UnlikeSeries)
        return self.series.skipped + rounds[:, None] * self.series.own + self.places


@dataclass(frozen=True, slots=True)
class TimedWork:
    """A computation of every client: seconds per unit drawn (kinds, M); whether it ``steps``: counts as an update.

    ``flops`` (kinds, M) are its operations, None where they have no energy. ``by`` (M,) are the clients who do it, None
    if all do.
    """

    draw: Draw
    factors: Floats
    steps: bool
    flops: Floats | None = None
    by: Bools | None = None

    def seconds(self, drawn: Floats, kinds: Ints) -> Floats:
        """Return the seconds for draws (n, M) in rounds with batches of ``kinds`` (n,)."""
        return drawn * self.factors[kinds] if (self.factors != 1.0).any() else drawn

    def take(self, index: Ints, kind: int) -> Floats:
        """Return the seconds (M,) of every client's ``index[c]``-th such computation, on a batch of ``kind``."""
        taken: Floats = self.draw.series.stage.take(index) * self.factors[kind]
        return taken


@dataclass(frozen=True, slots=True)
class TimedService:
    """A computation of the server, or one in each client's turn: seconds per unit drawn (kinds, 1) or (kinds, M).

    ``draw`` is the first of its draws in a round; each client's is ``apart`` draws later. ``ends`` says whether it ends
    the round. ``flops``, in the shape of the seconds, are its operations, None where they have no energy. ``ahead``:
    see ``ServerWork``.
    """

    draw: Draw
    factors: Floats
    ends: bool
    flops: Floats | None = None
    ahead: int = 0
    apart: int = 1

    def seconds(self, drawn: Floats, kinds: Ints) -> Floats:
        """Return the seconds (n, 1) or (n, M) for all draws of the series (n, each)."""
        taken: Floats = drawn[:, self.draw.place + self.later] * self.factors[kinds]
        return taken

    @property
    def later(self) -> Ints:
        """How many draws later than the first that of each client is (1,) or (M,)."""
        return np.arange(self.factors.shape[1]) * self.apart


@dataclass(frozen=True, slots=True)
class Way:
    """A message of every client in one direction: latency, rates (M,) in bit/s, sizes (kinds, M) in bytes.

    ``number`` counts the messages of its kind, which a sender sends; ``round`` is that of the first, -1 for none.
    """

    latency: Draw
    rates: Floats
    sizes: Ints
    number: Draw
    round: int

    @property
    def seconds(self) -> Floats:
        """Durations of the transfers (kinds, M)."""
        return seconds(self.sizes, self.rates)


@dataclass(frozen=True, slots=True)
class PeerWay:
    """A message of every client to each other client.

    Receivers are of one sort if the same message reaches them in the same time from whoever sends it: ``sort`` (M,).
    Of each sort (S) and sender: the ``latency``, rates in bit/s and ``copies``, the receivers, (S, M). A client alone
    in its sort is no receiver of its own messages: their latency is -inf. ``sizes`` (kinds, M) are in bytes.
    """

    latency: Draw
    rates: Floats
    copies: Ints
    sort: Ints
    sizes: Ints

    @property
    def seconds(self) -> Floats:
        """Durations of the transfers (kinds, S, M)."""
        return seconds(self.sizes[:, None], self.rates)


@dataclass(frozen=True, slots=True)
class TimedDelay:
    """A delay of every client, ``factor`` times what it draws; ``round`` is that of the first, -1 for none."""

    draw: Draw
    factor: float
    round: int


@dataclass(frozen=True, slots=True)
class TimedSending:
    """A message of every client to the server, after its upload delay."""

    delay: Draw
    way: Way


@dataclass(frozen=True, slots=True)
class TimedAnswers:
    """A message of the server to every client, and what it does to work of clients that are ``late``.

    Clients that are ``busy`` take it up when they have done what they do.
    """

    way: Way
    late: Late | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class TimedToPeers:
    """A message of every client to each other one."""

    way: PeerWay


@dataclass(frozen=True, slots=True)
class TimedTurns:
    """One client after the other does these acts with the server."""

    acts: Timed


TimedAct: TypeAlias = (
    Activated
    | ClientSleep
    | ClientsWait
    | ServerWaits
    | TimedWork
    | TimedDelay
    | TimedService
    | TimedSending
    | TimedAnswers
    | TimedToPeers
    | TimedTurns
)
Timed: TypeAlias = tuple[TimedAct, ...]


def seconds(sizes: Any, rates: Floats) -> Floats:
    """Return the durations of transfers of ``sizes`` bytes at ``rates`` bit/s."""
    taken: Floats = 8 * sizes / rates
    return taken


@dataclass(frozen=True, slots=True)
class SingleTrip:
    """A round of one trip, in its parts: what recurrences need that decide whom the server waits for."""

    embed: TimedWork
    up: TimedSending
    serve: TimedService
    down: TimedAnswers
    step: TimedWork

    @classmethod
    def of(cls, acts: Timed) -> SingleTrip:
        """Take a round apart."""
        embed, up, _, serve, down, step = (act for act in acts if not isinstance(act, Activated))
        assert isinstance(embed, TimedWork)
        assert isinstance(up, TimedSending)
        assert isinstance(serve, TimedService)
        assert isinstance(down, TimedAnswers)
        assert isinstance(step, TimedWork)
        return cls(embed, up, serve, down, step)

    def server_seconds(self, first: int, kinds: Ints) -> Floats:
        """Return the durations of the server's steps from round ``first`` on (n,)."""
        return self.serve.seconds(self.serve.draw.series.rows(first, len(kinds))[:, :, 0], kinds)[:, 0]


def of_kinds(values: Floats | None, kinds: Ints) -> Floats | None:
    """Return the values (n, M) of batches of ``kinds``, None if there are none."""
    return None if values is None else values[kinds]
