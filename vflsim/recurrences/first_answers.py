"""Rounds that need not wait for everybody: the first answers that the server uses, and clients that come late."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vflsim.recurrences.ages import UsedAges
from vflsim.recurrences.chunk import Bools, Moves, undecided
from vflsim.recurrences.peer_messages import PeerMessages
from vflsim.recurrences.stages import Ints, Stage
from vflsim.recurrences.timed_acts import Draw, TimedWork, Way, seconds
from vflsim.recurrences.trail import Now
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import Late

Play = Callable[[int, int], None]
"""Plays one act in round k of the chunk, whose batch is of a kind."""


class Skipped:
    """How many draws of one activity each client has not taken: ``of`` (M,), None where all have taken all."""

    def __init__(self) -> None:
        self.of: Ints | None = None

    def add(self, clients: Bools) -> None:
        """Let these clients (M,) leave out one draw more."""
        if clients.any():
            self.of = clients + (0 if self.of is None else self.of)


class Latecomers:
    """What rounds know of clients (M,) that may come late, from one round to the next.

    Each begins a round when it is free, and steps if its answer has been used: then ``ages`` tells how old what is used
    is. Or they are ``gathered``: in every round they first wait for each other, and all step as it ends. With a
    ``deadline`` the server waits for so many seconds after a round's begin, or for the first answer after it.
    """

    def __init__(self, clients: int, ages: UsedAges | None = None, deadline: float | None = None) -> None:
        self.ages, self.gathered, self.deadline = ages, ages is None, deadline
        self.skipped: dict[Draw, Skipped] = {}
        """The draws that clients have not taken."""
        self.joined = np.full(clients, -1.0)
        """When each client began the latest round that it has taken part in, where late work is finished."""
        self.used = np.zeros(clients, np.bool_)
        """Whether that round used the client."""

    def chosen(self, arrives: Floats, count: int, began: float) -> tuple[float, Bools]:
        """Return the end of the server's wait since ``began``, and whose answers it uses, given all arrivals (M,)."""
        if self.deadline is None:
            return first_of(arrives, count)
        limit, last = began + self.deadline, float(arrives.max())
        used: Bools = arrives <= limit
        return (min(last, limit), used) if used.any() else first_of(arrives, 1)


class FirstAnswers:
    """The clients' work in n rounds, from when they are ready for it to a message of the server that waits for a few.

    They are ``ready`` (n, M) as they have waited for each other, for ``peers``: the messages between them; or, without
    any, when they are free. The activities of a client follow each other. If late work is abandoned, an activity takes
    its draw if it begins before the message reaches the client. If it is finished, the client takes all draws if it is
    ready before.
    """

    def __init__(self, late: Latecomers, first: int, kinds: Ints, now: Now, peers: PeerMessages | None = None) -> None:
        self.late, self._first, self._kinds, self._now, self._peers = late, first, kinds, now, peers
        self._shape = len(kinds), len(now.clients)
        self.ready = np.empty(self._shape)
        self.used = np.zeros(self._shape, np.bool_)
        """Whose answers the server uses (n, M)."""
        self.waited = np.empty(len(kinds))
        """When the server has the answers that it waits for (n,)."""
        self._latest = self.ready
        """When the activity before ends, or (the first) the clients are ready."""
        self._random: list[tuple[Stage, Skipped, Floats]] = []
        """The random activities: their draws, and when they begin (n, M)."""
        self._sent = self._began = self._arrives = self._heard = self.ready
        self._way: Way | None = None
        self._fate: Late = "abandoned"

    # --- the acts, in their order -----------------------------------------------------------------------------------

    def begin(self, k: int, _: int) -> None:
        """Note that every client is free for round k."""
        self.ready[k] = self._now.clients

    def activity(self, draw: Draw, drawn: Callable[[Draw], Floats], factors: Floats | None = None) -> Play:
        """Add an activity of the clients, whose draws are multiplied by ``factors`` (kinds, M).

        Raises ValueError if it is not the only one of its purpose in a round: then a client that skips it may take the
        draw later in the same round.
        """
        now, begins = self._now, self._latest
        skipped, lasting = self._lasting(draw, drawn, factors)
        if draw.series.stage.varies:
            self._random.append((draw.series.stage, skipped, begins))
        ends = self._latest = np.empty(self._shape)

        def play(k: int, kind: int) -> None:
            now.clients = np.add(now.clients, lasting(k, kind), out=ends[k])

        return play

    def step(self, work: TimedWork, drawn: Callable[[Draw], Floats], ends: Floats) -> Play:
        """Add the step of the clients used, which puts into ``ends`` (n, M) when it ends."""
        now, varies = self._now, work.draw.series.stage.varies
        skipped, lasting = self._lasting(work.draw, drawn, work.factors)

        def play(k: int, kind: int) -> None:
            used, done = self.used[k], now.clients + lasting(k, kind)
            ends[k] = np.where(used, done, np.inf)
            now.clients = np.where(used, done, now.clients)
            if varies:
                skipped.add(~used)

        return play

    def _lasting(
        self, draw: Draw, drawn: Callable[[Draw], Floats], factors: Floats | None
    ) -> tuple[Skipped, Callable[[int, int], Floats]]:
        """Return what counts the draws that clients skip, and what gives the seconds (M,) of those that they take."""
        first, series = self._first, draw.series
        if series.stage.varies and series.each > 1:
            raise ValueError("clients may skip an activity that is not the only one of its purpose in a round")
        skipped = self.late.skipped.setdefault(draw, Skipped())
        scaled = factors if factors is not None and (factors != 1.0).any() else None
        taken = np.empty(0)
        if skipped.of is None:
            taken = drawn(draw) if scaled is None else drawn(draw) * scaled[self._kinds]

        def lasting(k: int, kind: int) -> Floats:
            if skipped.of is None:
                row: Floats = taken[k]
                return row
            row = series.stage.take(series.skipped + first + k - skipped.of)
            return row if scaled is None else row * scaled[kind]

        return skipped, lasting

    def sending(self, way: Way, drawn: Callable[[Draw], Floats]) -> tuple[Play, Play]:
        """Add the message to the server, whose upload delay is over."""
        self._way, self._sent = way, self._latest
        begin = self.activity(way.latency, drawn)
        now, seconds, began = self._now, way.seconds, self._latest
        arrives = np.empty(self._shape)
        self._began, self._arrives = began, arrives

        def end(k: int, kind: int) -> None:
            now.arrives = np.add(began[k], seconds[kind], out=arrives[k])

        return begin, end

    def waiting(self, count: int) -> Play:
        """Add the server's wait for the first ``count`` messages, or until a deadline."""
        now, late, waited = self._now, self.late, self.waited

        def play(k: int, _: int) -> None:
            arrives, began = self._arrives[k], now.server if self._first + k else 0.0
            last, self.used[k] = late.chosen(arrives, count, began)
            waited[k] = now.server = max(now.server, last)
            at_once = (late.gathered or now.server > began) and np.maximum.reduce(self.ready[k]) >= now.server
            if at_once and np.any((arrives == now.server) & (self.ready[k] == now.server)):
                self._refuse("an answer takes no time, and arrives as the server begins", k)

        return play

    def telling(self, way: Way, moves: Moves, empty: int) -> Play:
        """Add that of the server's messages on a way, ``moves``, those to clients not used are ``empty``, in bytes."""
        lasting = seconds(empty, way.rates)

        def play(k: int, _: int) -> None:
            others = ~self.used[k]
            np.copyto(moves.sizes[k], empty, where=others)
            np.add(moves.began[k], lasting, out=moves.ends[k], where=others)

        return play

    def hearing(self, late: Late, heard: Floats) -> Play:
        """Add that the clients hear the server's message, which they have received at ``heard`` (n, M)."""
        self._fate, self._heard = late, heard
        if late == "abandoned":
            return self._abandon
        return self._finish if self.late.gathered else self._join

    def _abandon(self, k: int, _: int) -> None:
        """End the work of all clients. No client hears of it before the server's step has ended."""
        heard, ended = self._heard[k], self._now.server
        if self._peers is None:
            self._now.clients = np.maximum(self.ready[k], heard)
        elif self._peers.latest >= ended:
            self._cut_peers(self._peers, k, heard)
        # An activity begins after those before it: mostly the last one has begun, and so have all.
        for stage, skipped, begins in reversed(self._random):
            if np.maximum.reduce(begins[k]) < ended:
                break
            late = ~self._in_time(k)
            self._refuse_ties(k, late & stage.random & (begins[k] == heard))
            skipped.add(late & (begins[k] >= heard))

    def _finish(self, k: int, _: int) -> None:
        """Let those gathered finish their work; who still waits for others gives up."""
        now, heard, ready = self._now, self._heard[k], self.ready[k]
        done = np.maximum(self._sent[k], heard)
        if np.maximum.reduce(ready) >= now.server:
            away = ~self._in_time(k)
            self._refuse_ties(k, away & (ready == heard))
            away &= ready > heard
            for _stage, skipped, _begins in self._random:
                skipped.add(away)
            done[away] = heard[away]
            self._leave_out(k, np.flatnonzero(away))
        now.clients = done

    def _join(self, k: int, _: int) -> None:
        """Let clients join the round, and finish their work, that are free before they hear of its end."""
        now, late, heard, ready = self._now, self.late, self._heard[k], self.ready[k]
        if np.any(heard <= late.joined):
            self._refuse("a gradient overtakes the one before it", k)
        joins = self._in_time(k) | (ready < heard)
        away = ~joins
        if away.any():
            tied = away & (ready == heard)  # who was left out of its latest round is free before it hears
            self._refuse_ties(k, tied & (late.used | (heard == self.waited[k])))
            for _stage, skipped, _begins in self._random:
                skipped.add(away)
            np.copyto(self._arrives[k], np.inf, where=away)
        now.clients = np.where(joins, np.maximum(self._sent[k], heard), ready)
        late.joined = np.where(joins, ready, late.joined)
        late.used = np.where(joins, self.used[k], late.used)

    def _refuse_ties(self, k: int, tied: Bools) -> None:
        if tied.any():
            self._refuse("a message arrives as its client begins another activity", k)

    def _cut_peers(self, peers: PeerMessages, k: int, heard: Floats) -> None:
        """Leave out the clients whom not all messages of the others reach, since the round is over for the senders."""
        if peers.ties(k, heard):
            self._refuse("a client's message arrives as the round is over for it", k)
        self._leave_out(k, peers.without(k, heard))

    def _leave_out(self, k: int, clients: Ints) -> None:
        if len(clients):
            begun = [begins for _, _, begins in self._random]
            for times in (self.ready, *begun, self._sent, self._began, self._arrives):
                times[k, clients] = np.inf

    def _in_time(self, k: int) -> Bools:
        in_time: Bools = self._arrives[k] <= self.waited[k]
        return in_time

    def _refuse(self, what: str, k: int) -> None:
        raise undecided(what, self._first + k, float(self.waited[k]))

    # --- what the rounds leave --------------------------------------------------------------------------------------

    def moves(self) -> tuple[Moves, ...]:
        """Return the transfers to the server, and between clients. Raises ``UndecidedError``."""
        way, heard, arrives = self._way, self._heard, self._arrives
        assert way is not None, "an answer is a message"
        sizes = way.sizes[self._kinds]
        whole = Moves("up", self._began, arrives, sizes, sizes, way.rates)
        if self._fate == "finished":
            return whole, *self._between(None)
        in_time = arrives <= self.waited[:, None]
        tied = ~in_time & (arrives == heard)
        if tied.any():
            self._refuse("a message arrives as its client ends another", int(np.flatnonzero(tied.any(axis=1))[0]))
        delivered = in_time | (arrives < heard)
        if delivered.all():
            return whole, *self._between(heard)
        ends = np.where(delivered, arrives, np.where(self._sent < heard, heard, np.inf))
        counted = np.where(delivered, sizes, 0)
        moves = Moves("up", self._began, ends, sizes, counted, np.broadcast_to(way.rates, self._shape))
        cut = ~delivered & (self._began < heard)
        counted[cut] = moves.only(cut).through(heard[cut])
        return moves, *self._between(heard)

    def _between(self, over: Floats | None) -> tuple[Moves, ...]:
        return () if self._peers is None else (self._peers.moves(over),)


def first_of(arrives: Floats, count: int) -> tuple[float, Bools]:
    """Return when the ``count``-th arrives, and which the first are: by time, then by client."""
    ordered = arrives.copy()
    ordered.partition(count - 1)
    last = ordered[count - 1]
    used = arrives <= last
    if (many := np.count_nonzero(used)) > count:
        used[np.flatnonzero(arrives == last)[count - many :]] = False
    return float(last), used
