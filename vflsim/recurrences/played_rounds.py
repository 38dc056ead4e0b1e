"""The times of consecutive rounds while their acts are played, and what the rounds leave."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from vflsim.recurrences.chunk import AT_SERVER, Bools, Chunk, Direction, Moves, State, Stretches, undecided
from vflsim.recurrences.first_answers import FirstAnswers, Latecomers, Play
from vflsim.recurrences.peer_messages import PeerMessages
from vflsim.recurrences.shared_links import Carry, SharedLinks
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed_acts import (
    Draw,
    Series,
    TimedAnswers,
    TimedDelay,
    TimedSending,
    TimedService,
    TimedToPeers,
    TimedTurns,
    TimedWork,
    Way,
    of_kinds,
)
from vflsim.recurrences.trail import Now
from vflsim.recurrences.turns import TurnByTurn
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.arrivals import ActivationProcess
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import ClientSleep, ClientsWait, ServerWaits


class PlayedRounds:
    """The times of n rounds from ``first`` on, with batches of ``kinds`` (n,) and ``steps`` client steps each."""

    notes_all = False
    """Whether acts are noted that take no time and leave nothing but events."""

    def __init__(
        self,
        world: TimedWorld,
        first: int,
        kinds: Ints,
        now: Now,
        steps: int,
        processes: list[ActivationProcess | None],
        links: SharedLinks | None = None,
        orders: Sequence[str] = (),
    ) -> None:
        self.world, self.first, self.kinds, self.now, self.processes = world, first, kinds, now, processes
        self.pauses, self.links = world.pauses or None, links
        self.orders = iter(orders)
        """Of each message to all clients, that of ``sending_orders``."""
        self.arrivals: dict[str, Floats] = {}
        """When the messages of each kind that clients send arrive (n, M)."""
        count, clients = len(kinds), len(world.clients)
        self.shape = count, clients
        self.scratch = np.empty(clients)
        self.ends, self.waited, self.steps = np.empty(count), np.empty(count), np.empty((count, steps, clients))
        self.stepped = 0
        self.during: list[Moves] = []
        self.after: list[Moves] = []
        self.over = self.steps_during = False
        self.turns: list[TurnByTurn] = []
        self.late: Latecomers | None = None
        """The clients that may be late, where the server does not wait for all."""
        self.answers: FirstAnswers | None = None
        """The clients' work for which the server may not wait, until they hear that its wait is over."""
        self.heard: FirstAnswers | None = None
        """The same, once the clients have heard that it is over."""
        self.sent_to_peers: list[PeerMessages] = []
        self.pending: PeerMessages | None = None
        """The latest messages to peers, until they are waited for."""
        self.spans: list[Stretches] = []
        """What parties do, in a metered world."""
        self._drawn: dict[Series, Floats] = {}

    def drawn(self, draw: Draw) -> Floats:
        """Return a draw of every round (n, columns)."""
        return draw.of(self.series(draw.series))

    def series(self, series: Series) -> Floats:
        """Return all draws of a series in these rounds (n, each, columns)."""
        if series not in self._drawn:
            self._drawn[series] = series.rows(self.first, len(self.kinds))
        return self._drawn[series]

    def plays(self, act: object) -> Iterator[Play]:
        """Yield what plays an act in each round; nothing if it takes no time and leaves nothing."""
        if isinstance(act, TimedWork):
            yield from self._work(act)
        elif isinstance(act, TimedSending):
            yield from self._sending(act)
        elif isinstance(act, TimedAnswers):
            yield from self._answers(act)
        elif isinstance(act, ServerWaits):
            if act.count is None or self.answers is None:
                yield self._waiting(act)
            else:
                yield self.answers.waiting(act.count)
        elif isinstance(act, TimedDelay):
            taken = self.drawn(act.draw) * act.factor
            yield self._noted("radio", self._passing(taken), act, taken)
        elif isinstance(act, ClientSleep):
            taken = np.broadcast_to(act.seconds, self.shape)
            yield self._noted("sleep", self._passing(taken), act, taken)
        elif isinstance(act, TimedToPeers):
            yield self._to_peers(act)
        elif isinstance(act, ClientsWait):
            yield self._clients_wait()
        elif isinstance(act, TimedService):
            yield self._service(act)
        elif isinstance(act, TimedTurns):
            yield self._in_turn(act)
        elif self.late is not None and not self.late.gathered:
            self.answers = FirstAnswers(self.late, self.first, self.kinds, self.now)
            yield self.answers.begin
        elif self.pauses is not None or any(process is not None for process in self.processes):
            yield self._activating()

    def _work(self, act: TimedWork) -> Iterator[Play]:
        nothing = act.draw.series.stage.nothing or not act.factors.any()
        if nothing and not act.steps and act.flops is None and self.pauses is None and not self.notes_all:
            return
        if self.answers is not None:
            yield self.answers.activity(act.draw, self.drawn, act.factors)
            return
        if self.heard is not None and not self.heard.late.gathered:
            yield self.heard.step(act, self.drawn, self.steps[:, self.stepped])
            self.stepped += 1
            return
        taken = act.seconds(self.drawn(act.draw), self.kinds)
        play = self._step(taken, act.by) if act.steps else self._passing(taken, act.by)
        yield self._noted("compute", play, act, taken)

    def _noted(self, state: State, play: Play, act: Passes, taken: Floats) -> Play:
        """Return a play of the clients that notes when it begins and ends, where somebody asks."""
        if not self.world.metered and not self.notes_all:
            return play
        now, began, ends = self.now, np.empty(self.shape), np.empty(self.shape)
        flops = of_kinds(act.flops, self.kinds) if isinstance(act, TimedWork) else None
        self.spans.append(Stretches(state, began, ends, np.arange(self.shape[1]), flops, taken, self.over))

        def noted(k: int, kind: int) -> None:
            began[k] = now.clients
            play(k, kind)
            ends[k] = now.clients

        return noted

    def _passing(self, taken: Floats, by: Bools | None = None) -> Play:
        now, scratch, lasting = self.now, self.scratch, self._lasting(taken, by)

        def play(k: int, _: int) -> None:
            np.add(now.clients, lasting(k), out=scratch)
            now.clients = scratch

        return play

    def _step(self, taken: Floats, by: Bools | None) -> Play:
        now, ends, lasting, scratch = self.now, self.steps[:, self.stepped], self._lasting(taken, by), self.scratch
        self.stepped += 1
        self.steps_during |= not self.over

        def play(k: int, _: int) -> None:
            now.clients = np.add(now.clients, lasting(k), out=ends[k])

        def play_some(k: int, _: int) -> None:
            now.clients = np.add(now.clients, lasting(k), out=scratch)
            ends[k] = scratch if by is None else np.where(by, scratch, np.inf)

        return play if by is None else play_some

    def _lasting(self, taken: Floats, by: Bools | None) -> Callable[[int], Floats]:
        """Return what gives the durations (M,) in round k of work that takes ``taken`` (n, M) of those who are up."""
        now, pauses = self.now, self.pauses
        if pauses is None:
            return taken.__getitem__
        if by is None:
            return lambda k: pauses.lasting(now.clients, taken[k])
        return lambda k: np.where(by, pauses.lasting(now.clients, taken[k]), 0.0)

    def _sending(self, act: TimedSending) -> Iterator[Play]:
        if self.answers is not None:
            if not act.delay.series.stage.nothing:
                yield self.answers.activity(act.delay, self.drawn)
            yield from self.answers.sending(act.way, self.drawn)
            return
        if self.pauses is not None or not act.delay.series.stage.nothing or self.notes_all:
            taken = self.drawn(act.delay)
            yield self._noted("radio", self._passing(taken), act, taken)
        moves = self._moves(act.way, "up")
        began, self.arrivals[act.way.number.series.purpose] = moves.began, moves.ends
        now, latency, carry = self.now, self.drawn(act.way.latency), self._carrying(act.way, moves)

        def play(k: int, kind: int) -> None:
            np.add(now.clients, latency[k], out=began[k])
            now.arrives = carry(k, kind)

        yield play

    def _answers(self, act: TimedAnswers) -> Iterator[Play]:
        way = act.way
        moves = self._moves(way, "down")
        began, ends = moves.began, moves.ends
        now, latency, carry = self.now, self.drawn(way.latency), self._carrying(way, moves)
        order, clients = next(self.orders, ""), np.arange(self.shape[1])

        def play(k: int, kind: int) -> None:
            now.sending.server = np.argsort(self.arrivals[order][k], kind="stable") if order else clients
            np.add(latency[k], now.server, out=began[k])
            now.clients = carry(k, kind)

        def play_busy(k: int, kind: int) -> None:
            busy = now.clients
            play(k, kind)
            now.clients = np.maximum(busy, ends[k])

        yield play_busy if act.busy else play
        if self.answers is not None and act.late is not None:
            if not self.answers.late.gathered:
                yield self.answers.telling(way, moves, self.world.empty)
            yield self.answers.hearing(act.late, ends)
            self.heard, self.answers = self.answers, None

    def _to_peers(self, act: TimedToPeers) -> Play:
        if self.world.metered:
            raise undecided("clients send each other messages, whose energy is not counted", self.first, 0.0)
        self.pending = messages = PeerMessages(act.way, self.kinds, self.drawn(act.way.latency))
        if self.late is None:
            self.sent_to_peers.append(messages)
        now = self.now
        return lambda k, kind: messages.send(k, kind, now.clients)

    def _clients_wait(self) -> Play:
        messages, now, ready = self.pending, self.now, np.empty(self.shape)
        assert messages is not None, "clients wait for what they have sent each other"
        self.pending = None
        if self.late is not None:
            self.answers = FirstAnswers(self.late, self.first, self.kinds, now, messages)
            ready = self.answers.ready

        def play(k: int, _: int) -> None:
            now.clients = messages.there(k, ready[k])
            if now.given is not None:
                if np.maximum.reduce(now.given) <= np.minimum.reduce(now.clients):
                    now.given = None  # time only passes
                else:
                    np.maximum(now.clients, now.given, out=now.clients)

        return play

    def _carrying(self, way: Way, moves: Moves) -> Carry:
        """Return what sets when the messages of a round end, by when they begin to move."""
        pauses, sizes, seconds, began, ends = self.pauses, way.sizes, way.seconds, moves.began, moves.ends
        if self.links is not None:
            return self.links.carrying(moves, way, self.kinds, self.now)
        if pauses is None:
            return lambda k, kind: np.add(began[k], seconds[kind], out=ends[k])
        moving, direction = pauses.moving, moves.direction
        return lambda k, kind: np.add(began[k], moving(direction, began[k], sizes[kind], seconds[kind]), out=ends[k])

    def _moves(self, way: Way, direction: Direction) -> Moves:
        profiles = None if self.pauses is None else self.pauses.profiles(direction)
        began, ends, sizes = np.empty(self.shape), np.empty(self.shape), way.sizes[self.kinds]
        moves = Moves(direction, began, ends, sizes, sizes, way.rates, profiles=profiles)
        if self.links is not None:
            moves = replace(moves, profiles=self.links.shares(moves, way, self.kinds))
        (self.after if self.over else self.during).append(moves)
        return moves

    def _waiting(self, act: ServerWaits) -> Play:
        return self._wait

    def _wait(self, k: int, _: int) -> None:
        now = self.now
        now.server = max(now.server, float(now.arrives.max()))

    def _service(self, act: TimedService) -> Play:
        seconds = act.seconds(self.series(act.draw.series)[:, :, 0], self.kinds)
        taken, flops = seconds[:, 0].tolist(), of_kinds(act.flops, self.kinds)
        now, ends, waited, begins = self.now, self.ends, self.waited, np.empty((len(taken), 1))
        stops = np.empty_like(begins)
        self.spans.append(Stretches("compute", begins, stops, AT_SERVER, flops, seconds, self.over))

        def work(k: int, _: int) -> None:
            begins[k] = now.server
            now.server += taken[k]
            stops[k] = now.server

        def end(k: int, _: int) -> None:
            waited[k] = begins[k] = now.server
            now.server += taken[k]
            ends[k] = stops[k] = now.server

        self.over |= act.ends
        return end if act.ends else work

    def _in_turn(self, act: TimedTurns) -> Play:
        turns = TurnByTurn(act.acts, self.shape, self.kinds, self.drawn, lambda draw: self.series(draw.series)[:, :, 0])
        now = self.now
        self.turns.append(turns)
        self.steps_during |= bool(turns.steps)

        def play(k: int, _: int) -> None:
            now.server, now.clients = turns.play(k, now.server)

        return play

    def _activating(self) -> Play:
        return self._activation

    def _activation(self, k: int, _: int) -> None:
        self.scratch[:] = self.world.pauses.active(self.processes, self.now.clients, self.first + k)
        self.now.clients = self.scratch

    def played(self) -> Chunk:
        """Return what the rounds leave, once they have been played."""
        for turns in self.turns:
            moves = turns.moves(self.links)
            follow = self.over and not self.steps_during
            self.spans += turns.spans(follow)
            (self.after if follow else self.during).extend(moves)
            for place in turns.steps:
                self.steps[:, self.stepped] = turns.ends[:, :, place]
                self.stepped += 1
        self.during.extend(messages.moves() for messages in self.sent_to_peers)
        used, ages = None, None if self.late is None else self.late.ages
        if self.heard is not None:
            used, self.waited = self.heard.used, self.heard.waited
            self.during.extend(self.heard.moves())
        if not self.over:  # before the first round
            self.ends.fill(math.nan)
            self.waited.fill(math.nan)
        steps = self.steps[:, 0] if self.steps.shape[1] == 1 else self.steps
        return Chunk(
            self.first, self.ends, self.waited, used, steps, tuple(self.during), tuple(self.after),
            self.world.fresh_ages(self.kinds) if ages is None or used is None else ages.of(self.first, used),
            ordered=self.late is None, steps_during=self.steps_during,
            all_fresh=used is not None and ages is None, spans=tuple(self.spans) if used is None else None,
        )  # fmt: skip


Passes: TypeAlias = TimedWork | TimedDelay | TimedSending | ClientSleep
"""What lets a client's time pass."""
