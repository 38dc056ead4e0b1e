"""Clients at their own pace, and a server that steps on the first t embeddings that are there: a heap of arrivals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray

from vflsim.recurrences.ages import ArrivalAges, BatchRows
from vflsim.recurrences.chunk import AgeSums, Chunk, Direction, Moves, Stretches
from vflsim.recurrences.cycles import ALL, BACK, HOME, RETURN, STEP, THERE, TRANSFER, PacedCycles, PacedSpans
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.synchronous import Program
from vflsim.recurrences.timed_acts import SingleTrip
from vflsim.recurrences.trail import Now
from vflsim.recurrences.world import TimedWorld
from vflsim.timing.floats import Floats

OfStep = Callable[[int, int], float]
"""What the server's step on so many full batches, and on so many last ones of an epoch, costs."""


@dataclass(slots=True)
class Served:
    """Steps in their order: start, end and seconds of each; of each arrival the client, and its waits.

    ``paused`` has the seconds of the cycles that begin with some of the arrivals, where clients may pause; ``shared``
    the times of all these cycles that depend on others, where messages share links.
    """

    clients: list[int] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    paused: dict[int, list[float]] = field(default_factory=dict)
    shared: Floats | None = None


class OwnPace:
    """Embeddings wait for the server in the order of (arrival, client); a step takes the first t of them.

    Each client embeds its next batch once it has stepped with the gradient of the batch before. ``step_seconds`` are
    per unit drawn, and None where all steps of the server have the law of a step on one batch; ``step_flops`` are its
    operations.
    """

    def __init__(
        self, world: TimedWorld, t: int, rows: BatchRows, step_seconds: OfStep | None, step_flops: OfStep
    ) -> None:
        self._world, self._t, self._rows = world, t, rows
        self._step_seconds = None if step_seconds is None else cache(step_seconds)
        self._step_flops = cache(step_flops)
        self._trip = SingleTrip.of(world.round)
        self._span = PacedSpans(self._trip, world.kind_of)
        clients = len(world.clients)
        self._cycles = PacedCycles(world, self._trip)
        self._next = [self._cycles.of(place).__next__ for place in range(clients)]
        processes = world.activations()
        self._pauses = world.pauses
        waiting = bool(self._pauses) or any(process is not None for process in processes)
        self._processes = processes if waiting else []
        ways = {"up": self._trip.up.way, "down": self._trip.down.way} if self._pauses else {}
        self._sizes = {direction: way.sizes.tolist() for direction, way in ways.items()}
        self._small = np.uint16 if clients <= 2**16 else np.int32
        self._begun = np.zeros(clients, np.int64)  # the steps that each client's embeddings have been used in
        self._ages = ArrivalAges(rows, clients)
        now = Now(clients)
        before: tuple[Moves, ...] = ()
        self._spans: tuple[Stretches, ...] = ()
        if world.before:
            played = Program(world, world.before).play(0, 1, now)
            before, self._spans = played.during, played.spans or ()
        self._free = now.server
        self._heap: list[tuple[float, int]] = []
        self._before = self._first_messages(now, before)

    def _first_messages(self, now: Now, before: tuple[Moves, ...]) -> tuple[Moves, ...]:
        """Return what is sent before the first round: ``before`` clients embed, and the first embeddings."""
        ready, taken = now.clients, self._cycles.first()
        if self._processes:
            waits = [self._waits(place, now) for place, now in enumerate(ready.tolist())]
            ready = running_times(ready, np.array(waits))[:, -1]
            for place in self._pauses.gates:
                taken[place] = self._paused(place, float(ready[place]), taken[place].tolist(), HOME, 0)
        times = running_times(ready, taken)
        self._heap = [(arrival, place) for place, arrival in enumerate(times[:, -1].tolist())]
        heapify(self._heap)
        return (*before, self._first_embeddings(times, taken, times[:, 3]))

    def _first_embeddings(self, times: Floats, taken: Floats, began: Floats) -> Moves:
        """Return the first embeddings, and note what clients do until then, by times (M, 5) and seconds (M, 4)."""
        sizes = self._trip.up.way.sizes[self._world.kind_of(np.zeros(1, np.int64))]
        self._spans += self._span.first(times, taken)
        began, ends, rates = began[None], times[None, :, 4], self._trip.up.way.rates
        return Moves("up", began, ends, sizes, sizes, rates, profiles=self._profiles("up"))

    def _profiles(self, direction: Direction) -> NDArray[np.object_] | None:
        """Return what of each client's messages has moved by a time (M,), None if their rates tell."""
        return self._pauses.profiles(direction) if self._pauses else None

    def _waits(self, place: int, now: float) -> tuple[float, float]:
        """Return the seconds from ``now`` until a client's next activation, and then until it is up."""
        process = self._processes[place]
        if process is None and place not in self._pauses.gates:
            return 0.0, 0.0
        return self._pauses.activated(place, process, now)

    def _paused(self, place: int, now: float, taken: list[float], activity: int, number: int) -> list[float]:
        """Return how long activities last from ``now`` on, the first of them ``activity``, by a client that may pause.

        They take ``taken`` seconds without outages, and messages are about batch ``number``.
        """
        per_epoch, pauses, lasting = self._world.sequence.per_epoch, self._pauses, []
        kind = int(number % per_epoch == per_epoch - 1)
        for each, seconds in enumerate(taken, activity):
            if each in (RETURN, TRANSFER):
                direction: Direction = "down" if each == RETURN else "up"
                moving = pauses.transfer(direction, place, now, self._sizes[direction][kind][place])
                seconds = seconds if moving is None else moving
            elif each not in (BACK, THERE):
                seconds = pauses.work(place, now, seconds)
            lasting.append(seconds)
            now += seconds
        return lasting

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on. Raises ``UndecidedError``."""
        plain = self._t == 1 and self._step_seconds is None and not self._processes
        served = (self._one_by_one if plain else self._several)(self._drawn(first, count))
        return self._chunk(first, count, served)

    def _drawn(self, first: int, count: int) -> list[float]:
        """Return the draws of the server's steps, seconds where all have one law."""
        drawn = self._trip.serve.draw.series.rows(first, count)[:, 0, 0]
        if self._step_seconds is None:
            drawn = drawn * self._trip.serve.factors[0, 0]
        draws: list[float] = drawn.tolist()
        return draws

    def _one_by_one(self, drawn: list[float]) -> Served:
        heap, free, following, served = self._heap, self._free, self._next, Served(seconds=drawn)
        clients, waited, ends = served.clients, served.waited, served.ends
        for seconds in drawn:
            arrival, place = heap[0]
            start = arrival if arrival > free else free
            free = start + seconds
            back, transfer, step, embed, upload, there, sending = following[place]()
            heapreplace(heap, (free + back + transfer + step + embed + upload + there + sending, place))
            clients.append(place)
            waited.append(start)
            ends.append(free)
        self._free = free
        return served

    def _several(self, drawn: list[float]) -> Served:
        heap, free, following, served = self._heap, self._free, self._next, Served()
        begun, gates = self._begun.tolist(), self._pauses.gates
        for seconds in drawn:
            used = [heappop(heap) for _ in range(self._t)]
            start = max(used[-1][0], free)
            lasting = seconds * self._unit([(place, begun[place]) for _, place in used])
            free = start + lasting
            served.seconds.append(lasting)
            for _, place in used:
                begun[place] += 1
                back, transfer, step, embed, upload, there, sending = cycle = following[place]()
                if place in gates:
                    back, transfer, step = home = self._paused(place, free, cycle[:HOME], BACK, begun[place] - 1)
                now = free + back + transfer + step
                if self._processes:
                    waits = self._waits(place, now)
                    served.waits.append(waits)
                    now = now + waits[0] + waits[1]
                if place in gates:
                    embed, upload, there, sending = out = self._paused(place, now, cycle[HOME:], HOME, begun[place])
                    served.paused[len(served.clients)] = home + out
                heappush(heap, (now + embed + upload + there + sending, place))
                served.clients.append(place)
            served.waited.append(start)
            served.ends.append(free)
        self._free = free
        return served

    def _unit(self, used: list[tuple[int, int]]) -> float:
        """Return the seconds per unit drawn of a step on these clients' batches; of equal ones only one counts."""
        if self._step_seconds is None:
            return 1.0
        return self._step_seconds(*self._batches([number for _, number in used]))

    def _flops_of_steps(self, indices: Ints) -> Floats | None:
        if self._trip.serve.flops is None:
            return None
        return np.array([self._step_flops(*self._batches(numbers)) for numbers in indices.tolist()])

    def _batches(self, numbers: list[int]) -> tuple[int, int]:
        """Return how many full batches, and how many last ones of an epoch, a step on these is on."""
        per_epoch = self._world.sequence.per_epoch
        batches = {*numbers} if self._rows.shared else numbers
        last = sum(number % per_epoch == per_epoch - 1 for number in batches)
        return len(batches) - last, last

    def _chunk(self, first: int, count: int, served: Served) -> Chunk:
        """Work out all times of these steps' consequences, by the additions by which they were found."""
        places, ends = np.array(served.clients), np.array(served.ends)
        indices, taken = self._cycles_of(places)
        waits = bool(self._processes)
        for arrival, lasting in served.paused.items():
            taken[arrival] = lasting
        if waits:
            taken = np.insert(taken, [HOME, HOME], np.array(served.waits), axis=1)
        times, *began = self._cycle_times(served, ends.repeat(self._t), taken)
        shape = count, self._t

        def at(activity: int) -> Floats:
            """Return when it ends."""
            return times[:, 1 + activity + (2 if waits and activity >= HOME else 0)].reshape(shape)

        def moves(direction: Direction, began: Floats, over: int, numbers: Ints) -> Moves:
            way = self._trip.up.way if direction == "up" else self._trip.down.way
            sizes = way.sizes[self._world.kind_of(numbers), places].reshape(shape)
            rates, profiles = way.rates[places].reshape(shape), self._profiles(direction)
            if profiles is not None:
                profiles = profiles[places].reshape(shape)
            begins, whose = began.reshape(shape), places.reshape(shape)
            return Moves(direction, begins, at(over), sizes, sizes, rates, profiles=profiles, places=whose)

        used = np.zeros((count, len(self._world.clients)), bool)
        used[np.arange(count).repeat(self._t), places] = True
        after = moves("down", began[0], RETURN, indices), moves("up", began[1], TRANSFER, indices + 1)
        arrivals = places.reshape(shape), indices.reshape(shape)

        def ages(start: int, stop: int) -> AgeSums:
            return self._ages.window(first + start, *(each[start:stop] for each in arrivals))

        before = () if first else self._before
        waited = np.array(served.waited)
        spans = () if first else self._spans
        if self._world.metered:
            flops = self._flops_of_steps(indices.reshape(shape))
            spans += (
                self._span.server(waited, ends, served.seconds, flops),
                *self._span.cycles(
                    times.reshape(*shape, -1), taken.reshape(*shape, -1), indices.reshape(shape), places.reshape(shape)
                ),
            )
        return Chunk(first, ends, waited, used, at(STEP), (), after, ages, before=before, spans=spans)

    def _cycle_times(self, served: Served, ends: Floats, taken: Floats) -> tuple[Floats, Floats, Floats]:
        """Return when activities of cycles begin and end that follow ``ends`` (n,), (n, 1 + k).

        Also when the messages down and up begin to move, (n,) each. Activities and waits take ``taken`` seconds (n, k).
        """
        times = running_times(ends, taken)
        return times, times[:, 1 + BACK], times[:, -2]

    def _cycles_of(self, places: Ints) -> tuple[Ints, Floats]:
        """Return the number of each arrival's batch, and the seconds of the cycle that begins with its step."""
        order = np.argsort(places.astype(self._small), kind="stable")  # a radix sort, where numbers are small
        sorted_ = places[order]
        begins = np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]]))
        lengths, clients = np.diff(begins, append=len(places)), sorted_[begins]
        starts = self._begun[clients]
        self._begun[clients] += lengths
        indices, taken = np.empty_like(places), np.empty((len(places), ALL))
        indices[order] = np.arange(len(places)) + (starts - begins).repeat(lengths)
        each = zip(clients.tolist(), starts.tolist(), lengths.tolist(), strict=True)
        taken[order] = np.concatenate([self._cycles.rows(*one) for one in each])
        return indices, taken


def running_times(start: Floats, taken: Floats) -> Floats:
    """Return ``start`` (n,) and the running sums with ``taken`` (n, k), added one by one from the left: (n, 1 + k)."""
    sums: Floats = np.add.accumulate(np.concatenate([start[:, None], taken], axis=1), axis=1)
    return sums
