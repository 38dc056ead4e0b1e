"""Laws of the stages of a coded round, from its acts, by the rules of ``docs/timing.md``."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from vflsim.analysis.stages import Stages, Turn, Unanalysable
from vflsim.coding.lagrange import LagrangeCode
from vflsim.protocols.fedvs.client import CodedClientLearner
from vflsim.protocols.fedvs.keys import coding_plan
from vflsim.protocols.fedvs.learners import CodedServerLearner, coded_learners
from vflsim.protocols.fedvs.messages import coded_acts, data_acts
from vflsim.protocols.fedvs.plan import CodingPlan, SegmentedBatch
from vflsim.setting import Learners, Setting
from vflsim.streams import SERVER
from vflsim.timing.delays import Constant
from vflsim.timing.delays.sums import shifted, total
from vflsim.timing.floats import Floats
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import maximum
from vflsim.tracing.acts import (
    Act,
    Acts,
    ClientDelay,
    ClientsWait,
    ServerWaits,
    ServerWork,
    ToClients,
    ToPeers,
    ToServer,
    bytes_of,
)

if TYPE_CHECKING:
    from vflsim.protocols.fedvs.keys import CodedKeys


class CodedStages(Stages):
    """Lower and (``slow``) upper bounds of every stage of a coded round.

    The bounds are equal if no message waits for a link and shares arrive at once. Slow stages start when the last
    client has sent its shares: by then the links hold no message of the previous round.
    """

    def __init__(self, protocol: CodedKeys, setting: Setting, plan: CodingPlan | None = None) -> None:
        super().__init__(protocol, setting)
        self.protocol = protocol
        if self.protocol.sharers is not None:
            raise Unanalysable("the sum of a round goes over those who share first: uploads depend on shares")
        self.plan = coding_plan(protocol, setting, seed=0) if plan is None else plan
        self._known: dict[tuple[int, int, bool], Acts] = {}
        self._passing: dict[int, Law] = {}
        self._leftovers: dict[Turn, float] = {}

    def coded(self, segments: int, masks: int) -> CodedStages:
        """Return the stages with another code. Raises ValueError if batches cannot be cut into ``segments``."""
        code = LagrangeCode(self.plan.quantiser.field, segments, masks, len(self.clients))
        protocol = self.protocol.model_copy(update={"K": segments, "T": masks})
        stages = CodedStages(protocol, self.setting, replace(self.plan, code=code))
        _ = stages.turns
        return stages

    # --- stages, in their order -----------------------------------------------------------------------------------

    def sharing(self, client: int, turn: Turn, slow: bool = False) -> Law:
        """Return the law from the end of a server step until this client sends its shares."""
        before, now = (self._acts(client, places, slow) for places in (turn.before, turn.now))
        return self._lasts(client, (*_part(before, ServerWork, None), *_part(now, None, ToPeers)), turn, slow)

    def passing(self, client: int) -> Law:
        """Return the law of the longest way of this client's shares to its peers, as an upper bound."""
        if client not in self._passing:
            queued, moving = self._network.queued, self._crowd * self._shares[self.plan.places[client]]
            ways = [
                total([*self._latency(client, peer), Point(0.0 if queued else float(seconds))])
                for peer, seconds in zip(self.clients, moving, strict=True)
                if peer != client
            ]
            self._passing[client] = shifted(maximum(ways), self._traffic if queued else 0.0)
        return self._passing[client]

    def answering(self, client: int, turn: Turn, slow: bool = False) -> Law:
        """Return the law from the arrival of all shares to that of this client's coded embedding."""
        return self._lasts(client, _part(self._acts(client, turn.now, slow), ClientsWait, ServerWaits), turn, slow)

    def stepping(self, turn: Turn, slow: bool = False) -> Law:
        """Return the law of decoding and server step."""
        acts = self._acts(self.clients[0], turn.now, slow)
        return total([self._lasting(SERVER, act.operation) for act in acts if isinstance(act, ServerWork)])

    def data_sharing(self, client: int) -> Law:
        """Return the law of making the shares of this client's data."""
        return total(self._laws(client, data_acts(self._learners.clients, client)[0]))

    def data_passing(self) -> float:
        """Bound the seconds from the sending of the last client's data shares until all clients have all data shares.

        Infinite if latencies are unbounded.
        """
        latency = max(
            maximum([total(self._latency(client, peer)) for peer in self.clients if peer != client]).support[1]
            for client in self.clients
        )
        moving = self._between({client: data_acts(self._learners.clients, client)[1] for client in self.clients})
        return latency + (_queued(moving) if self._network.queued else self._crowd * float(moving.max()))

    # --- acts -----------------------------------------------------------------------------------------------------

    @cached_property
    def _learners(self) -> Learners[CodedServerLearner, CodedClientLearner]:
        return coded_learners(self.setting, self.plan, 0)

    @cached_property
    def _batches(self) -> dict[tuple[int, bool], SegmentedBatch]:
        """Batches of so many places with the fewest and (``True``) the most training rows: some may be padding."""
        sequence = self._algorithm.batch_plan().batches(self._data.rows, self._training, 0)
        sizes = [batch for batch in sequence.sizes() if isinstance(batch, SegmentedBatch)]
        padded = np.zeros(self.plan.segment_rows, np.int64)
        np.add.at(padded, np.arange(self.plan.rows, self.plan.segments * len(padded)) % len(padded), 1)
        padded.sort()
        return {
            (len(batch.positions), slow): batch
            for batch in sizes
            for slow, most in ((False, padded[-len(batch.positions) :]), (True, padded[: len(batch.positions)]))
            if len(batch) == len(batch.rows) - most.sum()
        }

    def _acts(self, client: int, places: int, slow: bool) -> Acts:
        if (client, places, slow) not in self._known:
            batch, made = self._batches[places, slow], self._learners
            self._known[client, places, slow] = coded_acts(self.protocol, made.server, made.clients, client, batch)
        return self._known[client, places, slow]

    def _lasts(self, client: int, acts: Acts, turn: Turn, slow: bool) -> Law:
        """Return the law of consecutive acts, with (``slow``) the longest waits for links."""
        wait = math.fsum(self._waits(client, act, turn, slow) for act in acts)
        return shifted(total([law for act in acts for law in self._laws(client, act)]), wait)

    # --- waits for links ------------------------------------------------------------------------------------------

    def _waits(self, client: int, act: Act, turn: Turn, slow: bool) -> float:
        """Bound the time for which a message waits for others: one from or to each client, and shares under way."""
        if not isinstance(act, ToServer | ToClients):
            return 0.0
        alone, down = self._moving(client, act), isinstance(act, ToClients)
        if not self._network.queued:
            return (self._crowd - 1) * alone if slow else 0.0
        late = self._left_over(turn) if down else 0.0
        if down and self._orderly and not late:  # gradients move in client order
            return self._all(ToClients, turn.before, slow, client) - alone
        return self._all(type(act), turn.before if down else turn.now, slow) - alone + late if slow else 0.0

    def _all(self, kind: type[Act], places: int, slow: bool = True, last: float = math.inf) -> float:
        """Return the seconds of the messages of a kind from or to all clients up to one, one at a time."""
        some = [client for client in self.clients if client <= last]
        each = ((client, act) for client in some for act in self._acts(client, places, slow))
        return math.fsum(self._moving(client, act) for client, act in each if isinstance(act, kind))

    @property
    def _crowd(self) -> int:
        """The most messages that share a link: shares, and a gradient or uploads."""
        return self._network.crowd(len(self.clients))

    @cached_property
    def _shares(self) -> Floats:
        """The seconds in which a share of a model moves from each client to each other."""
        each = ((client, self._acts(client, self.turns[0].now, slow=True)) for client in self.clients)
        return self._between({client: _part(acts, ClientDelay, ClientsWait)[0] for client, acts in each})

    def _between(self, acts: dict[int, Act]) -> Floats:
        seconds: Floats = np.array([
            [
                8.0 * bytes_of(act, self._codec, peer) / min(self._rate(client, "up"), self._rate(peer, "down"))
                if peer != client else 0.0
                for peer in self.clients
            ]
            for client, act in acts.items()
        ])  # fmt: skip
        return seconds

    @cached_property
    def _traffic(self) -> float:
        """Bound the seconds that all shares of a round need on ``fifo`` links after their latency."""
        uploads = (self._all(ToServer, turn.now) for turn in self.turns)
        return _queued(self._shares) + (0.0 if self._orderly else max(uploads))

    @cached_property
    def _orderly(self) -> bool:
        """Whether messages sent at one instant enter the lines at one instant, in the same order."""
        laws = {self._timings[client].link.latency for client in self.clients}
        of_server = self._timings[SERVER].link.latency
        constant = isinstance(of_server, Constant) and isinstance(next(iter(laws)), Constant)
        return len(laws) == 1 and constant and self._network.latency is None

    def _left_over(self, turn: Turn) -> float:
        """Bound a gradient's wait for shares of the previous round: zero if all arrive before any upload can."""
        if turn not in self._leftovers:
            soonest = sorted(self.answering(client, turn).support[0] for client in self.clients)
            under_way = max(self.passing(client).support[1] for client in self.clients)
            self._leftovers[turn] = 0.0 if soonest[self.plan.threshold - 1] >= under_way else self._traffic
        return self._leftovers[turn]


def _queued(moving: Floats) -> float:
    """Bound the duration of queues of such transfers (M, M), by sender and receiver.

    While a share waits, its sender sends another, or its receiver receives another: a share is through when all of its
    row and of its column are, at the latest.
    """
    return float((moving.sum(axis=1)[:, None] + moving.sum(axis=0) - moving).max())


def _part(acts: Acts, after: type[Act] | None, before: type[Act] | None) -> Acts:
    """Return the acts between the last of a kind and the first of another; None: the beginning, the end."""
    places = [0, *(place + 1 for place, act in enumerate(acts) if after is not None and isinstance(act, after))]
    rest = acts[places[-1] :]
    ends = (place for place, act in enumerate(rest) if before is not None and isinstance(act, before))
    return rest[: next(ends, len(rest))]
