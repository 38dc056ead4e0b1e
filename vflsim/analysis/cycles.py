"""The cycle of each client, from one server step to the arrival of its next message, as its traced acts have it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from vflsim.analysis.lockstep import RoundLaws, Trip
from vflsim.analysis.stages import Turn
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.timing.delays.sums import total
from vflsim.timing.laws.law import Law
from vflsim.tracing.acts import Act, ClientWork, ServerWork, ToClients, ToServer, bytes_of
from vflsim.tracing.recording import Traceable
from vflsim.world.messages import Gradient


class Cycles(RoundLaws):
    """Rounds of one trip of every client, of which a step need not await all, and of the server's step."""

    def __init__(self, protocol: Traceable, setting: Setting) -> None:
        super().__init__(protocol, setting, by_hand=True)
        self._known: dict[tuple[Turn, bool], list[Law]] = {}

    def trip(self, turn: Turn) -> Trip:
        """Return the trip from a server step to the next: gradients down, client steps, embeddings up."""
        (trip,) = (part for part in self.course(turn) if isinstance(part, Trip))
        return trip

    def cycles(self, turn: Turn, used: bool = True) -> list[Law]:
        """Return every client's law from the end of a server step to the arrival of its next message, without queues.

        A client that was not ``used`` gets an empty gradient, and takes no step.
        """
        if (turn, used) not in self._known:
            trip = self.trip(turn)
            self._known[turn, used] = self._of_clients([
                total(chain if used else self._all(client, map(_unused, (act for act in acts if not _steps(act)))))
                for client, chain, acts in zip(self._groups, trip.chains, trip.acts, strict=True)
            ])  # fmt: skip
        return self._known[turn, used]

    def returns(self, turn: Turn) -> list[tuple[Law, Law]]:
        """Return the laws of the gradient's way to each client, without queues, and of the client's steps on it."""
        return [
            (total(self._laws(client, acts[0])), total(self._all(client, [act for act in acts if _steps(act)])))
            for client, acts in zip(self._groups, self.trip(turn).acts, strict=True)
        ]

    def service(self, rows: int) -> Law:
        """Return the law of a server step on ``rows`` rows.

        Where each client walks its own batches, a traced step is on those of all, and one of these takes its place.
        """
        acts = next(iter(self._trace(rows).round.values()))
        works = [act.operation for act in acts if isinstance(act, ServerWork)]
        if self._training.batches == "own":
            sent = next(act.message for act in acts if isinstance(act, ToServer))
            works = [self._server.server_step([sent]) if each.counts == "round" else each for each in works]
        return total(self._lasting(SERVER, each) for each in works)

    @cached_property
    def _server(self) -> Any:
        return self._algorithm.learners(self.setting, 0).server

    # --- links ----------------------------------------------------------------------------------------------------

    @property
    def alone(self) -> bool:
        """Whether no message ever waits for a link."""
        return not any(any(self.waits(self.trip(turn))) for turn in self.turns)

    def transfers(self, turn: Turn) -> list[tuple[float, float]]:
        """Return the seconds that each group's gradient and embedding move, alone on their links."""
        down, up = self.trip(turn).messages
        return [(one[0], other[0]) for one, other in zip(down, up, strict=True)]

    def slowed_by_server(self, turn: Turn) -> bool:
        """Return whether the server's link alone, and no client's, decides how long they move."""
        acts = [[act for act in acts if isinstance(act, ToServer | ToClients)] for acts in self.trip(turn).acts]
        pairs = zip(self._groups, acts, self.transfers(turn), strict=True)
        return all(
            seconds == self._of_server(client, act)
            for client, sent, moving in pairs for act, seconds in zip(sent, moving, strict=True)
        )  # fmt: skip

    @property
    def queued(self) -> bool:
        """Whether the messages of a link move one at a time."""
        return self._network.queued

    def broadcast(self, turn: Turn) -> float:
        """Return the seconds in which the server's link sends a gradient to all clients."""
        alone = [self.transfers(turn)[group][0] for group in self._group]
        return math.fsum(alone) if self.queued or self._network.crowd(len(alone)) > 1 else max(alone)

    def _of_server(self, client: int, act: Act) -> float:
        rate = self._rate(SERVER, "down" if isinstance(act, ToServer) else "up")
        return 8 * bytes_of(act, self._codec, client) / rate

    def _all(self, client: int, acts: Iterable[Act]) -> list[Law]:
        return [law for act in acts for law in self._laws(client, act)]


def _steps(act: Act) -> bool:
    return isinstance(act, ClientWork) and act.operation.counts == "update"


def _unused(act: Act) -> Act:
    return replace(act, message=Gradient(round=0), passed_on=()) if isinstance(act, ToClients) else act
