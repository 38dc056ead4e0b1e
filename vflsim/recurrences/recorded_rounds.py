"""Rounds that are played with all that events tell of them: draws, numbers, and the order in which they happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import override

from vflsim.recurrences.chunk import (
    AT_SERVER,
    NOBODY,
    Bools,
    Chunk,
    Direction,
    EventFacts,
    Moves,
    State,
    Stretches,
    undecided,
)
from vflsim.recurrences.first_answers import Play
from vflsim.recurrences.played_rounds import Passes, PlayedRounds
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed_acts import (
    Draw,
    TimedAnswers,
    TimedDelay,
    TimedSending,
    TimedService,
    TimedToPeers,
    TimedTurns,
    TimedWork,
    Way,
)
from vflsim.recurrences.trail import ACT, MessageTrail, Trail
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import ServerWaits


class RecordedRounds(PlayedRounds):
    """``PlayedRounds`` whose spans are told, and which note the events of the world in which these begin and end."""

    notes_all = True

    def __init__(self, *rounds: Any) -> None:
        super().__init__(*rounds)
        assert self.now.trail is not None, "events are recorded"
        self._trail: Trail = self.now.trail
        self._rounds = np.arange(self.first, self.first + self.shape[0])
        self._act = 0
        self._answered: list[int] = []
        self._sent: MessageTrail
        self._times: Floats
        self._numbers: Ints
        self._places: Ints
        """Of the messages at hand: when and with which numbers they are sent, and in which order."""

    @override
    def plays(self, act: object) -> Iterator[Play]:
        self._act += 1
        yield from super().plays(act)

    def _steps(self, more: int = 0) -> Ints:
        return self._trail.steps(self.first, self.shape[0], self._act) + more

    def _named(self, round_: int) -> Ints:
        """Return what events say of the round (n, 1), given what they say of the first."""
        return np.where(round_ < 0, -1, self._rounds[:, None] + round_)

    def _facts(self, draw: Draw, drawn: Floats, steps: Ints, begun: Ints, ended: Ints, **rest: Any) -> EventFacts:
        """Return what events tell of activities that draw."""
        named = {"rounds": self._named(-1), "peers": NOBODY, "numbers": draw.numbers(self._rounds)} | rest
        return EventFacts((draw.series.purpose,), drawn=drawn, steps=steps, begun=begun, ended=ended, **named)

    @override
    def _noted(self, state: State, play: Play, act: Passes, taken: Floats) -> Play:
        noted, span, steps = super()._noted(state, play, act, taken), self.spans[-1], self._steps()
        passing = self._trail.passing(taken > 0, span.ends, steps)
        facts, events = None, (steps, passing.begun, passing.ended)
        if isinstance(act, TimedWork):
            counts = "update" if act.steps else None
            facts = self._facts(act.draw, self.drawn(act.draw), *events, some=act.by, counts=counts)
        elif isinstance(act, TimedDelay):
            facts = self._facts(act.draw, taken, *events, rounds=self._named(act.round))
        elif isinstance(act, TimedSending):
            facts = self._facts(act.delay, taken, *events, rounds=self._named(act.way.round), peers=AT_SERVER)
        self.spans[-1] = replace(span, facts=facts)

        def followed(k: int, kind: int) -> None:
            noted(k, kind)
            passing.follow(k)

        return followed

    @override
    def _activating(self) -> Play:
        now, drawn, began, ends = self.now, *np.full((3, *self.shape), np.nan)
        numbers, there, steps = np.zeros(self.shape, np.int64), np.zeros(self.shape, bool), self._steps()
        passing = self._trail.passing(there, ends, steps)
        some = np.array([process is not None for process in self.processes])
        named = (self._named(-1), NOBODY, numbers, drawn, steps, passing.begun, passing.ended)
        facts = EventFacts(("activation",), *named, some=some)
        self.spans.append(Stretches("activation", began, ends, np.arange(self.shape[1]), facts=facts))

        def play(k: int, _: int) -> None:
            began[k] = ends[k] = now.clients
            for place in np.flatnonzero(some).tolist():
                process, start = self.processes[place], float(began[k, place])
                assert process is not None
                activation = self.world.pauses.activation(place, process, start, self.first + k)
                numbers[k, place], drawn[k, place] = activation.index, activation.drawn
                wait = max(0.0, activation.time - start)
                there[k, place], ends[k, place] = wait > 0, start + wait
            now.clients = ends[k]
            passing.follow(k)

        return play

    @override
    def _moves(self, way: Way, direction: Direction) -> Moves:
        moves = super()._moves(way, direction)
        began, ends = moves.began, moves.ends
        moved, up, clients = self.after if self.over else self.during, direction == "up", np.arange(self.shape[1])
        latency, steps = self.drawn(way.latency), self._steps(1)
        self._times = np.empty(self.shape)
        numbers, places = way.number.numbers(self._rounds), np.broadcast_to(clients, self.shape).copy()
        if not up:  # the server's messages to the other clients count, too
            numbers = numbers * len(clients) + places
        self._places, self._numbers = places, numbers
        self._sent = sent = self._trail.messages(latency, began, ends, steps, places)
        events = sent.begun, sent.moving, sent.arrived
        facts = self._of_message(way, up, (self._times, began), numbers, steps, events, places)
        moved[-1] = replace(moves, facts=facts)
        return moves

    def _of_message(
        self, way: Way, up: bool, latency: tuple[Floats, Floats], numbers: Ints, steps: Ints,
        events: tuple[Ints, Ints, Ints], places: Ints | None = None,
    ) -> EventFacts:  # fmt: skip
        """Note the latencies of messages, from one time to another; return what events tell of the messages.

        They are sent, move and arrive in ``events`` of the world.
        """
        (sent, began), (begun, moving, arrived), clients = latency, events, np.arange(self.shape[1])
        peers, parties = (AT_SERVER, clients) if up else (clients, AT_SERVER)
        named, drawn = (self._named(way.round), peers), self.drawn(way.latency)
        numbered, some = way.latency.numbers(self._rounds), way.latency.series.stage.taking
        facts = EventFacts(self.world.latencies(up), *named, numbered, drawn, steps, begun, moving, places, some)
        self.spans.append(Stretches("latency", sent, began, parties, facts=facts))
        kinds = (f"transfer.{way.number.series.purpose}",)
        return EventFacts(kinds, *named, numbers, np.nan, steps, begun, arrived, places, sent=sent, moving=moving)

    @override
    def _sending(self, act: TimedSending) -> Iterator[Play]:
        delay, play = super()._sending(act)
        now, sent, times = self.now, self._sent, self._times

        def followed(k: int, kind: int) -> None:
            play(k, kind)
            times[k] = now.clients
            sent.follow(k, self._trail.clients)
            now.arriving = sent.arrived[k]

        yield delay
        yield followed

    @override
    def _answers(self, act: TimedAnswers) -> Iterator[Play]:
        (play,) = super()._answers(act)
        now, trail, sent, times, places = self.now, self._trail, self._sent, self._times, self._places
        numbers, ends, until = self._numbers, (self.after if self.over else self.during)[-1].ends, np.empty(self.shape)
        self._answered.append(self._act)
        collected = trail.collections(until)

        def followed(k: int, kind: int) -> None:
            busy = now.clients.copy()
            times[k] = now.server
            play(k, kind)
            until[k] = now.clients
            numbers[k] -= places[k]
            places[k, now.sending.server] = np.arange(len(busy))
            numbers[k] += places[k]
            sent.follow(k, trail.server)
            for events, there in ((sent.arrived[k], ends[k]), (trail.clients, busy)):
                at_once = there == until[k]
                trail.join(collected[k][at_once], events[at_once])
            trail.clients = collected[k]

        yield followed

    @override
    def _waiting(self, act: ServerWaits) -> Play:
        if act.how == "singly":
            raise undecided("the server waits for one client after the other", self.first, 0.0)
        now, trail, wait = self.now, self._trail, super()._waiting(act)
        times, there = np.empty((self.shape[0], 1)), np.ones((self.shape[0], 1), bool)
        collected, beside = trail.collections(times, there, act.how == "each"), act.how in ("beside", "each")

        def followed(k: int, kind: int) -> None:
            end, arriving = now.server, now.arriving
            assert arriving is not None, "clients have sent what the server waits for"
            wait(k, kind)
            times[k] = now.server
            awaited = arriving[now.arrives == now.server]
            if beside and not len(awaited):
                there[k] = False  # it has got all before its own work ends
                return
            if end == now.server and not beside:
                awaited = np.append(awaited, trail.server)
            trail.join(np.broadcast_to(collected[k], awaited.shape), awaited)
            trail.server = int(collected[k, 0])

        return followed

    @override
    def _service(self, act: TimedService) -> Play:
        play, span, place = super()._service(act), self.spans[-1], act.draw.place
        steps = self._steps(ACT * (self._answered[-act.ahead] - self._act) if act.ahead else 0)
        assert span.seconds is not None
        passing = self._trail.passing(span.seconds > 0, span.ends, steps, at_server=True)
        drawn = self.series(act.draw.series)[:, place : place + 1, 0]
        events = steps, passing.begun, passing.ended
        facts = self._facts(act.draw, drawn, *events, counts="round" if act.ends else None)
        self.spans[-1] = replace(span, facts=facts)

        def followed(k: int, kind: int) -> None:
            play(k, kind)
            passing.follow(k)

        return followed

    @override
    def _to_peers(self, act: TimedToPeers) -> Play:
        raise undecided("clients send each other messages, of which arrays have no events", self.first, 0.0)

    @override
    def _in_turn(self, act: TimedTurns) -> Play:
        if sum(isinstance(each, TimedAnswers) for each in act.acts) > 1:
            raise undecided("in its turn a client gets several messages", self.first, 0.0)
        play, turns, trail, clients = super()._in_turn(act), self.turns[-1], self._trail, np.arange(self.shape[1])
        begins = now = of_client = np.empty(self.shape, np.int64)  # the events that the turns have come to
        first: list[tuple[Bools, Ints, Ints]] = []  # what the server does up to its message
        place = 0
        for each in act.acts:
            self._act += 1
            steps = self._steps()
            if isinstance(each, TimedService | TimedWork | TimedSending):
                there, ends = turns.seconds[:, :, place] > 0, turns.ends[:, :, place]
                numbers = trail.events(ends, now, steps, None, there)
                begun, now = now, np.where(there, numbers, now)
                if isinstance(each, TimedService):
                    first.append((there, numbers, now))
                turns.facts[place] = self._of_turn(each, steps, begun, now)
                of_client = now
                place += 1
            if isinstance(each, TimedSending | TimedAnswers):
                up, way, late = isinstance(each, TimedSending), each.way, turns.seconds[:, :, place] > 0
                sent, began, ends = turns.begins[:, :, place], turns.ends[:, :, place], turns.ends[:, :, place + 1]
                numbers = trail.events(began, now, steps + 1, None, late)
                begun, now = now, np.where(late, numbers, now)
                if not up:
                    first.append((late, numbers, now))
                arrived = trail.events(ends, now, steps + 1, None)
                numbers = way.number.numbers(self._rounds)
                numbers = numbers if up else numbers * len(clients) + clients
                facts = self._of_message(way, up, (sent, began), numbers, steps + 1, (begun, now, arrived))
                turns.facts[place + 1] = facts
                now = trail.collections(ends)
                trail.join(now.ravel(), arrived.ravel())
                place += 2
        begins[:, 1:] = now[:, :-1]

        def followed(k: int, kind: int) -> None:
            play(k, kind)
            begins[k, 0], before = trail.server, begins
            for there, numbers, ended in first:
                ended[k] = np.where(there[k], numbers[k], before[k])
                before = ended
            trail.server, trail.clients = int(now[k, -1]), of_client[k]

        return followed

    def _of_turn(self, act: TimedService | TimedWork | TimedSending, *events: Ints) -> EventFacts:
        if isinstance(act, TimedService):  # one after the other
            draw, drawn = act.draw, self.series(act.draw.series)[:, act.draw.place + act.later, 0]
            return self._facts(draw, drawn, *events, numbers=draw.numbers(self._rounds) + act.later)
        if isinstance(act, TimedWork):
            return self._facts(act.draw, self.drawn(act.draw), *events, counts="update" if act.steps else None)
        named = {"rounds": self._named(act.way.round), "peers": AT_SERVER}
        return self._facts(act.delay, self.drawn(act.delay), *events, **named)

    @override
    def played(self) -> Chunk:
        played = super().played()
        return played if self._trail.early else replace(played, course=self._trail.course(self.now.horizon))
