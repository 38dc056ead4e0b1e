"""What bounds of clients at their own pace rest on: their cycles, the server's step, and the queues on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from vflsim.analysis.ageing import largest_hazard, new_better_than_used, no_shorter
from vflsim.analysis.cycles import Cycles, Turn
from vflsim.timing.law import Law, Point


@dataclass(frozen=True)
class LinkQueues:
    """The longest transfers (s) over the server's links, on which messages wait in order of arrival; 0: none wait.

    ``in_order``: gradients enter the link in the order in which the server sends them.
    """

    up: float
    down: float
    in_order: bool


@dataclass(frozen=True)
class Pace:
    """Clients at their own pace, and a server that steps on the first t arrivals. Times in seconds, in client order."""

    cycles: Cycles
    t: int

    @cached_property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.cycles.clients)

    @cached_property
    def means(self) -> list[float]:
        """The means of the cycles without waits, over all batches."""
        return [
            math.fsum(turn.share * self.cycles.cycle(client, turn).expectation() for turn in self.cycles.turns)
            for client in self.cycles.clients
        ]

    @cached_property
    def steps(self) -> list[Law]:
        """The laws of the server's steps on one to t different batches, full ones or last ones of an epoch."""
        return [self.cycles.service(rows) for turn in self.cycles.turns for rows in {turn.now, self.t * turn.now}]

    @cached_property
    def mean_step(self) -> tuple[float, float]:
        """Bounds of the server's mean step."""
        if self.t == 1:
            mean = math.fsum(turn.share * self.cycles.service(turn.now).expectation() for turn in self.cycles.turns)
            return mean, mean
        means = [law.expectation() for law in self.steps]
        return min(means), max(means)

    @cached_property
    def shortest_step(self) -> float:
        """The server's shortest step."""
        return min(law.support[0] for law in self.steps)

    @cached_property
    def longest_step(self) -> float:
        """The server's longest step; inf if none is."""
        return max(law.support[1] for law in self.steps)

    @cached_property
    def constant_step(self) -> bool:
        """Whether no step is random."""
        return all(isinstance(law, Point) for law in self.steps)

    @cached_property
    def hazards(self) -> list[float]:
        """The largest hazard rates of the times from a client's gradient to its next embedding (1/s).

        inf where none is known. The gradient's latency is left out, since others may wait for that gradient.
        """
        return [
            max(min(map(largest_hazard, self.cycles.own_part(client, turn))) for turn in self.cycles.turns)
            for client in self.cycles.clients
        ]

    @cached_property
    def ageing(self) -> bool:
        """Whether no cycle that is under way has longer to go than a new one, in distribution."""
        return all(new_better_than_used(law) for client in self.cycles.clients for law in self._laws(client))

    @cached_property
    def longest(self) -> list[Law] | None:
        """Cycles that are stochastically no shorter than those of any batch; None if there are none."""
        found = [self.cycles.cycle(client, self.full) for client in self.cycles.clients]
        known = zip(self.cycles.clients, found, strict=True)
        return found if all(no_shorter(law, other) for client, law in known for other in self._laws(client)) else None

    @cached_property
    def shortest(self) -> list[Law] | None:
        """Cycles that are stochastically no longer than those of any batch; None if there are none."""
        found = [self.cycles.cycle(client, self.smallest) for client in self.cycles.clients]
        known = zip(self.cycles.clients, found, strict=True)
        return found if all(no_shorter(other, law) for client, law in known for other in self._laws(client)) else None

    @cached_property
    def full(self) -> Turn:
        """A round on full batches."""
        turns = self.cycles.turns
        return Turn(1.0, max(each.before for each in turns), max(each.now for each in turns))

    @cached_property
    def smallest(self) -> Turn:
        """A round on the last batches of epochs."""
        turns = self.cycles.turns
        return Turn(1.0, min(each.before for each in turns), min(each.now for each in turns))

    @cached_property
    def alone(self) -> bool:
        """Whether no message waits for a link."""
        return not any(self.waits)

    @cached_property
    def waits(self) -> list[float]:
        """The longest waits for links in a cycle."""
        return [max(each) for each in zip(*map(self.cycles.longest_waits, self.cycles.turns), strict=True)]

    @cached_property
    def queues(self) -> LinkQueues | None:
        """The queues on the server's links; None if messages share links in another way."""
        if self.alone:
            return LinkQueues(0.0, 0.0, in_order=True)
        if not self.cycles.queued:
            return None
        down, up = zip(*(self.cycles.transfers(client, self.full) for client in self.cycles.clients), strict=True)
        return LinkQueues(max(up), max(down), self.cycles.in_order())

    @cached_property
    def shared(self) -> tuple[float, float] | None:
        """The mean transfers down and up of every client alone, if the server's links divide themselves equally.

        None if messages wait in a queue, if clients' own links slow them down, or if clients differ.
        """
        if self.cycles.queued or self.alone:
            return None
        turns, found = self.cycles.turns, set[tuple[float, float]]()
        for client in self.cycles.clients:
            pairs = [self.cycles.transfers(client, turn) for turn in turns]
            if pairs != [self.cycles.occupied(client, turn) for turn in turns]:
                return None
            means = (
                math.fsum(turn.share * pair[way] for turn, pair in zip(turns, pairs, strict=True)) for way in (0, 1)
            )
            found.add((next(means), next(means)))
        return found.pop() if len(found) == 1 else None

    def slack(self, turns: Sequence[Turn]) -> list[float]:
        """By how much the longest transfers outlast the clients' own in these rounds, on average."""
        if self.alone or self.queues is None:
            return [0.0] * self.clients
        longest, shares = self.queues.up + self.queues.down, math.fsum(turn.share for turn in turns)
        return [
            longest - math.fsum(turn.share * sum(self.cycles.transfers(client, turn)) for turn in turns) / shares
            for client in self.cycles.clients
        ]

    @cached_property
    def capacity(self) -> float:
        """The least mean time between messages over the server's busier link."""
        if self.alone:
            return 0.0
        turns = self.cycles.turns
        each = [[self.cycles.occupied(client, turn) for turn in turns] for client in self.cycles.clients]
        return max(
            min(math.fsum(turn.share * pair[way] for turn, pair in zip(turns, pairs, strict=True)) for pairs in each)
            for way in (0, 1)
        )

    def _laws(self, client: int) -> list[Law]:
        return [self.cycles.cycle(client, turn) for turn in self.cycles.turns]
