"""The law of a round in which all clients meet, from its trace: waits for the slowest, and work between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vflsim.analysis.findings import ClosedForm, Finding, Formula, Range
from vflsim.analysis.formulas import round_formulas
from vflsim.analysis.rounds import LATER, MIXED, ROUND, groups_of
from vflsim.analysis.stages import Stages, Turn, Unanalysable
from vflsim.learning.batches import Batch
from vflsim.setting import Setting
from vflsim.streams import SERVER, SHARED
from vflsim.timing.delays.sums import shifted, total
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import maximum
from vflsim.tracing.acts import (
    Act,
    Acts,
    InTurn,
    ServerWaits,
    ServerWork,
    ToClients,
    ToServer,
)
from vflsim.tracing.node import Untraceable
from vflsim.tracing.recording import Traceable
from vflsim.tracing.trace import RoundTrace, trace

MOST_RANDOM = 64
"""The most consecutive random times whose law is convolved; each takes about 20 ms."""
EARLY = "clients begin a round before the server has ended one"


@dataclass(slots=True)
class Trip:
    """From a message of the server to all clients until it has got theirs, by groups of alike clients.

    ``chains`` are a group's consecutive times, those of its ``acts``; ``beside`` those of the server meanwhile.
    ``messages`` are, of each message of the clients or to them, the seconds for which it moves: alone, and where all
    share the links.
    """

    chains: list[list[Law]]
    acts: list[list[Act]] = field(compare=False)
    beside: list[Law] = field(default_factory=list)
    messages: list[list[tuple[float, float]]] = field(default_factory=list)


Course = list[Trip | Law]
"""A round, from the end of one to the end of the next: trips, and times that everybody waits for between them."""


class RoundLaws(Stages):
    """The laws of a traced round. Raises ``Unanalysable`` with the reason if there are none.

    ``by_hand``: what is made of them knows what depends on times.
    """

    def __init__(self, protocol: Traceable, setting: Setting, by_hand: bool = False) -> None:
        super().__init__(protocol, setting)
        self._by_hand = by_hand
        self._traces: dict[int, RoundTrace] = {}
        self._courses: dict[Turn, Course] = {}
        sorts, latency = self._trace(self.turns[0].now).sorts, self._network.latency
        places: dict[object, int] = {}
        self._groups: list[int] = []
        """The first client of each group: all its clients do the same, with the same timing."""
        self._group: list[int] = []
        """The group of every client."""
        for client in self.clients:
            timing = self._timings[client]
            parts = timing.compute, timing.upload_delay, timing.activation, timing.link
            key = sorts[client], *map(id, parts), client if latency is not None else None
            if key not in places:
                places[key] = len(self._groups)
                self._groups.append(client)
            self._group.append(places[key])

    def course(self, turn: Turn) -> Course:
        """Return what happens from the end of a round to the end of the next."""
        if turn not in self._courses:
            self._courses[turn] = self._course(turn)
        return self._courses[turn]

    @property
    def mixed(self) -> tuple[str, ...]:
        """The condition of laws of a round picked at random, if kinds of rounds have different ones."""
        return (MIXED,) if any(self.course(turn) != self.course(self.turns[0]) for turn in self.turns) else ()

    def longest(self, trip: Trip) -> list[Law]:
        """Return the times of every client in a trip, in client order."""
        return self._of_clients([total(chain) for chain in trip.chains])

    def slowed(self, trip: Trip) -> list[Law]:
        """Return them with the longest waits for links.

        No client has two messages under way in one direction. fifo: each waits once for each of the others'. fair: a
        message gets at least its own link's bandwidth, or 1/M of the server's.
        """
        waits = self.waits(trip)
        return self._of_clients([shifted(total(chain), wait) for chain, wait in zip(trip.chains, waits, strict=True)])

    def waits(self, trip: Trip) -> list[float]:
        """Bound the time for which each group's messages wait for others in a trip."""
        waits = np.zeros(len(trip.chains))
        counts = np.bincount(self._group, minlength=len(trip.chains))
        for each in trip.messages:
            alone, shared = np.array(each).T
            waits += (counts * alone).sum() - alone if self._network.queued else shared - alone
        return [*map(float, waits)]

    def _of_clients(self, laws: Sequence[Law]) -> list[Law]:
        return [laws[group] for group in self._group]

    # --- a round in its parts -----------------------------------------------------------------------------------------

    def _course(self, turn: Turn) -> Course:
        before, now = self._trace(turn.before), self._trace(turn.now)
        of_groups = [self._acts(before, now, now.sorts[client]) for client in self._groups]
        course, trip = Course(), None
        for number, act in enumerate(of_groups[0] if of_groups else self._acts(before, now, SERVER)):
            each = [acts[number] for acts in of_groups]
            if isinstance(act, ServerWork):
                law = self._lasting(SERVER, act.operation)
                if trip is None:
                    course.append(law)
                else:
                    trip.beside.append(law)
            elif isinstance(act, InTurn):
                if trip is not None:
                    raise Unanalysable("clients take turns while others work")
                course += self._turns(each)
            elif isinstance(act, ServerWaits):
                if trip is None:
                    raise Unanalysable(EARLY)
                course.append(trip)
                trip = None
            elif isinstance(act, ToClients):
                if trip is not None:
                    raise Unanalysable("a message may find clients at work: what they wait for depends on times")
                trip = Trip([[] for _ in self._groups], [[] for _ in self._groups])
                self._add(trip, each)
            elif trip is None:
                raise Unanalysable(EARLY)
            else:
                self._add(trip, each)
        return course

    def _acts(self, before: RoundTrace, now: RoundTrace, first: int) -> Acts:
        """Return what follows the step that ends a round, and what precedes the next, up to it."""
        after, until = ([_ends(act) for act in each.round[first]].index(True) + 1 for each in (before, now))
        return (*before.round[first][after:], *now.round[first][:until])

    def _trace(self, rows: int) -> RoundTrace:
        if rows not in self._traces:
            batch = Batch(0, np.arange(rows) % self._data.rows, SHARED)
            try:
                self._traces[rows] = trace(self._algorithm, self.setting, 0, batch, self._by_hand)
            except Untraceable as why:
                raise Unanalysable(str(why)) from why
        return self._traces[rows]

    def _add(self, trip: Trip, acts: Sequence[Act]) -> None:
        for chain, known, client, act in zip(trip.chains, trip.acts, self._groups, acts, strict=True):
            chain += self._laws(client, act)
            known.append(act)
        if isinstance(acts[0], ToServer | ToClients):
            crowd = self._network.crowd(len(self.clients))
            pairs = zip(self._groups, acts, strict=True)
            trip.messages.append([(self._moving(*pair), self._moving(*pair, crowd)) for pair in pairs])

    def _turns(self, acts: Sequence[Act]) -> list[Law]:
        """Return the laws of all consecutive activities of the clients' turns."""
        taken: list[Law] = []
        for client, group in zip(self.clients, self._group, strict=True):
            turn = acts[group]
            assert isinstance(turn, InTurn)
            for act in turn.acts:
                taken += self._laws(client, act)
        return taken


def lockstep_law(protocol: Traceable, setting: Setting) -> tuple[Finding, ...]:
    """Return the law of traced rounds in which all clients meet. Raises ``Unanalysable`` with the reason.

    Example::

        (law,) = lockstep_law(Synchronous(), setting)
        law.name  # 'round duration'
    """
    return (law_of_rounds(RoundLaws(protocol, setting)),)


def law_of_rounds(laws: RoundLaws) -> ClosedForm:
    """Return the law of a round: of each trip the longest of the clients' times and the server's own, and the rest.

    All clients start afresh with fresh draws after each step that ends a round, so rounds are independent. Messages of
    a trip arrive before the next: waits for links do not add up.
    """

    def law(turn: Turn, of: Callable[[Trip], list[Law]]) -> Law:
        return total([_longest(part, of(part)) if isinstance(part, Trip) else part for part in laws.course(turn)])

    fast = laws.over_turns(lambda turn: law(turn, laws.longest))
    waits = [max(laws.waits(part), default=0.0) for turn in laws.turns for part in laws.course(turn)
             if isinstance(part, Trip)]  # fmt: skip
    slow = laws.over_turns(lambda turn: law(turn, laws.slowed)) if any(waits) else fast
    first = laws.course(laws.turns[0])
    trips = [part for part in first if isinstance(part, Trip)]
    conditions = [LATER, "draws are independent"] if trips else []
    conditions += laws.mixed
    if fast != slow:
        most = f", at most {max(waits):.3g} s a round and client" if len(first) == 2 else ""
        conditions.append(f"bounds: messages wait for each other on the links{most}")

    def formulas() -> tuple[Formula, ...]:
        if not trips:
            return round_formulas([], [], 0, fast)
        others = [part for part in first if part is not trips[0]]
        rest = [_longest(part, laws.longest(part)) if isinstance(part, Trip) else part for part in others]
        groups, names = groups_of(laws, laws.longest(trips[0]))
        if trips[0].beside:
            groups, names = [*groups, (total(trips[0].beside), 1)], [*names, "what the server does meanwhile"]
        many = len(laws.clients) + bool(trips[0].beside)
        equations = round_formulas(groups, names, many, total(rest))
        if len(first) == 2:  # a trip, and the server's step
            return equations
        return replace(equations[0], note="S: all that follows the first wait for the slowest client"), *equations[1:]

    if sum(not isinstance(part, Point) for part in first if not isinstance(part, Trip)) > MOST_RANDOM:
        mean = Range(fast.expectation(), slow.expectation())
        conditions.append("of so many random times only the mean")
        return ClosedForm(ROUND, "s", tuple(conditions), formulas, given=mean)
    return ClosedForm(ROUND, "s", tuple(conditions), formulas, fast, None if fast == slow else slow)


def _longest(trip: Trip, laws: list[Law]) -> Law:
    return maximum([*laws, *([total(trip.beside)] if trip.beside else [])])


def _ends(act: Act) -> bool:
    return isinstance(act, ServerWork) and act.operation.counts == "round"
