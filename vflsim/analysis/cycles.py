"""Laws of the times that a client spends between two server steps, by the rules of ``docs/timing.md``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from vflsim.codecs.frame import Spec
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.setting import Learners, Setting
from vflsim.streams import SERVER, SHARED, party_name
from vflsim.timing.activation import Immediate, Poisson
from vflsim.timing.availability import Always
from vflsim.timing.compute import (
    AnyCompute,
    ByOperation,
    ComputeModel,
    Costed,
    Flops,
    OperationCost,
    duration,
    law as drawn_law,
)
from vflsim.timing.delays.base import Delay, OfDelay
from vflsim.timing.delays.basic import Constant
from vflsim.timing.delays.sums import total
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import mixture
from vflsim.tracing.exchanges import Exchange, Exchanges
from vflsim.tracing.recording import Traceable
from vflsim.vocabulary.on_demand import torch
from vflsim.world.messages import Embedding
from vflsim.world.networks import Fluid


class Unanalysable(Exception):  # noqa: N818  not an error: the reason why there is no closed form
    """Raised with the reason if there is no closed form.

    Example::

        class Uneven(Synchronous):
            kind: Literal["uneven"] = "uneven"

            def closed_forms(self, setting: Setting) -> tuple[ClosedForm, ...]:
                if setting.network.kind != "dedicated":
                    raise Unanalysable("uploads share the server's link")
                return ()
    """


@dataclass(frozen=True, slots=True)
class Turn:
    """A kind of rounds with its share: rows of the batch of the returned gradient, and of the embedded batch.

    In a coded protocol they are places within a segment.
    """

    share: float
    before: int
    now: int


class Stages:
    """The durations of the parties' work in a protocol. Raises Unanalysable if no law is known.

    All laws are of rounds after the first, which is shorter, since no gradient precedes it.
    """

    def __init__(self, protocol: Traceable, setting: Setting) -> None:
        self._algorithm, self.setting = protocol, setting
        self._exchanges = Exchanges(protocol, setting)
        self._data, self._training = setting.data, setting.training
        self._timings, self._network, self._codec = setting.timings, setting.network, setting.codec
        self.clients = setting.clients
        self._widths = [model.embedding for model in setting.models]
        self._known: dict[Any, Law] = {}
        away = [client for client in self.clients if not isinstance(self._timings[client].availability, Always)]
        if away:
            raise Unanalysable(f"{party_name(away[0])} is not always available: rounds depend on the time")
        if not isinstance(setting.transport, Fluid):
            raise Unanalysable("a connection's window depends on the messages before (transport: tcp)")
        if (slots := self._timings[SERVER].concurrency) is not None:
            raise Unanalysable(f"messages wait for one of the {slots} slots of the server (timing.server.concurrency)")
        if setting.evaluation_takes_time:
            raise Unanalysable("evaluation costs time, and delays the rounds it falls into")

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """The kinds of rounds: a smaller last batch of an epoch also affects the round after it."""
        sequence = self._algorithm.batch_plan().batches(self._data.rows, self._training, 0)
        kinds: dict[tuple[int, int], int] = {}
        for k in range(sequence.per_epoch) if sequence.length(-1) < sequence.length(0) else (0,):
            pair = sequence.length(k - 1 + sequence.per_epoch), sequence.length(k)
            kinds[pair] = kinds.get(pair, 0) + 1
        rounds = sum(kinds.values())
        return tuple(Turn(count / rounds, *pair) for pair, count in kinds.items())

    def over_turns(self, of: Callable[[Turn], Law]) -> Law:
        """Return the law of a round picked at random, from the laws of each kind."""
        return mixture((turn.share, of(turn)) for turn in self.turns)

    # --- links ----------------------------------------------------------------------------------------------------

    def _latency(self, sender: int, receiver: int) -> list[Law]:
        laws = [
            law_of(self._timings[party].link.latency, f"the latency of {party_name(party)}")
            for party in (sender, receiver)
        ]
        if self._network.latency is not None:
            laws.append(Point(self._network.latency.seconds(sender, receiver)))
        return laws

    def _rate(self, party: int, direction: str) -> float:
        rate = getattr(self._timings[party].link, direction)
        if not isinstance(rate, float | int):
            raise Unanalysable(f"the bandwidth of {party_name(party)} changes in time: rounds are not alike")
        return rate

    def _bandwidth(self, sender: int, receiver: int, sharing: int = 1) -> float:
        """Return the bit/s of a message on its way, of which so many share the server's link."""
        up, down = self._rate(sender, "up"), self._rate(receiver, "down")
        return min(up / sharing, down) if sender == SERVER else min(up, down / sharing)

    # --- computation and activation -------------------------------------------------------------------------------

    def _compute(
        self, party: int, kind: str, rows: int, units: float = 1.0, flops: float | None = None
    ) -> Law:  # fmt: skip
        count = partial(self._flops, party, kind, rows)
        if flops is not None:
            model = self._model(party, kind)
            if isinstance(model, ComputeModel) and not isinstance(model, Flops):
                what = f"the compute model of {party_name(party)} ({model.kind}) may look at more than FLOPs"
                raise Unanalysable(what)
            count = partial(float, flops)
        return self._lasting(party, OperationCost(kind, rows, units, count))

    def _model(self, party: int, kind: str) -> AnyCompute:
        model: AnyCompute = self._timings[party].compute
        return model.of(kind) if isinstance(model, ByOperation) else model

    def _lasting(self, party: int, cost: Costed) -> Law:
        """Return the law of how long a computation takes."""
        if cost.seconds is not None:
            return Point(cost.seconds)
        model = self._model(party, cost.kind)
        delay, whose = drawn_law(model), party_name(party)
        if isinstance(model, ComputeModel) and not (
            isinstance(model, Flops) or model.proportional or isinstance(delay, Constant)
        ):
            raise Unanalysable(f"the compute model of {whose} ({model.kind}) turns a draw into time in its own way")
        if isinstance(delay, Constant) and isinstance(model, ComputeModel) and not model.proportional:
            return Point(duration(model, delay.value, cost))
        return law_of(delay, f"the compute time of {whose}", duration(model, 1.0, cost))

    def _activation(self, client: int) -> Law:
        activation = self._timings[client].activation
        if isinstance(activation, Immediate):
            return Point(0.0)
        if not isinstance(activation, Poisson):
            raise Unanalysable(f"the {activation.kind} activations of {party_name(client)} depend on the time")
        if activation.busy == "queue":
            raise Unanalysable(
                f"activations that find {party_name(client)} busy are queued: its waits depend on the rounds before"
            )
        return OfDelay(activation.gap())  # memoryless: the wait does not depend on its start

    @cached_property
    def _by_flops(self) -> bool:
        return any(isinstance(timing.compute, ComputeModel) for timing in self._timings)

    @cached_property
    def _learners(self) -> Learners[Any, Any]:
        return self._algorithm.learners(self.setting, 0)

    def _flops(self, party: int, kind: str, rows: int) -> float:
        """Count the FLOPs of the real operation on a batch of ``rows`` rows."""
        server, clients = self._learners.server, self._learners.clients
        batch = Batch(0, np.arange(rows) % self._data.rows, SHARED)
        operation: Operation[Any]
        if party == SERVER:
            message = Embedding(batch, Handle((rows, 1), self._training.torch_dtype), round=0)
            message.sender = next(iter(self.clients), SERVER)
            operation = server.server_step([message])
        elif kind in ("embed", "answer"):
            operation = getattr(clients[party], kind)(batch)
        else:
            operation = self._exchange(party, rows).steps[0]
        return operation.flops()

    def _exchange(self, client: int, rows: int) -> Exchange:
        return self._exchanges.of(client, rows)


class Cycles(Stages):
    """The sequence of a client's activities from one server step to the next, at its own pace."""

    @property
    def differing(self) -> bool:
        """Whether kinds of rounds have different laws."""
        first, *others = self.turns
        return any(
            (self.service(turn.now), self.cycles(turn)) != (self.service(first.now), self.cycles(first))
            for turn in others
        )

    @property
    def uploaded(self) -> torch.dtype:
        """The dtype of what clients upload."""
        return self.setting.uploaded

    def cycle(self, client: int, turn: Turn, used: bool = True) -> Law:
        """Return the law from the end of a server step to the arrival of this client's next embedding, without queues.

        It adds latency and transfer of the gradient, client step, activation, embedding, upload delay, latency and
        transfer of the embedding. A client that was not ``used`` gets an empty gradient, and takes no step.
        """
        timing = self._timings[client]
        key = (
            *(timing.compute, timing.upload_delay, timing.activation),
            *(timing.link, self._widths[client - 1], self.setting.alike(client) if self._by_flops else None),
            *(client if self._network.latency is not None else None, turn, used, self.sort(client)),
        )
        if key not in self._known:
            self._known[key] = total([*self.downlink(client, turn.before, used), *self.own_part(client, turn, used)])
        return self._known[key]

    def sort(self, client: int) -> object:
        """Return how cycles of clients with equal timing may differ; by default they do not."""
        return None

    def own_part(self, client: int, turn: Turn, used: bool = True) -> list[Law]:
        """Return the laws of the times from the arrival of a gradient to that of the client's next embedding."""
        steps = self.steps(client, turn.before) if used else []
        return [
            *(*steps, self._activation(client), self._compute(client, "embed", turn.now)),
            *self.uplink(client, turn.now),
        ]

    def cycles(self, turn: Turn, used: bool = True) -> list[Law]:
        """Return the cycle of every client, in client order."""
        return [self.cycle(client, turn, used) for client in self.clients]

    def return_of(self, client: int, turn: Turn) -> tuple[Law, Law]:
        """Return the laws of a gradient's way to this client, without queueing, and of the client step."""
        return total(self.downlink(client, turn.before)), total(self.steps(client, turn.before))

    def steps(self, client: int, rows: int) -> list[Law]:
        """Return the laws of the client steps of a round."""
        steps = self._exchange(client, rows).steps
        step = self._compute(client, "client_step", rows)
        if not self._by_flops:
            return [step] * len(steps)
        flops = [each.flops() for each in steps]
        return [step if each == flops[0] else self._compute(client, "client_step", rows, flops=each) for each in flops]

    # --- links ----------------------------------------------------------------------------------------------------

    def downlink(self, client: int, rows: int, used: bool = True) -> list[Law]:
        """Return the laws of a message's way to this client, without queues: a gradient of ``rows``, or without one."""
        return [*self._latency(SERVER, client), Point(self._down(client, rows, used))]

    def uplink(self, client: int, rows: int) -> list[Law]:
        """Return the laws of an embedding's way from this client, its upload delay first, without queues."""
        delay = law_of(self._timings[client].upload_delay, f"the upload delay of {party_name(client)}")
        return [delay, *self._latency(client, SERVER), Point(self._up(client, rows))]

    def service(self, rows: int) -> Law:
        """Return the law of a server step on ``rows`` rows."""
        return self._compute(SERVER, "server_step", rows)

    def longest_waits(self, turn: Turn) -> list[float]:
        """Bound the extra time of each client's two transfers due to others, in client order.

        Assumes that no client has two messages under way in one direction. fifo: each waits once for each of the
        others'. fair: a message gets at least its own link's bandwidth, or 1/M of the server's.
        """
        down = [self._down(client, turn.before, True) for client in self.clients]
        up = [self._up(client, turn.now) for client in self.clients]
        if self._network.queued:
            return [math.fsum(down) - a + math.fsum(up) - b for a, b in zip(down, up, strict=True)]
        crowd = self._network.crowd(len(self.clients))
        return [
            self._down(client, turn.before, True, crowd) - a + self._up(client, turn.now, crowd) - b
            for client, a, b in zip(self.clients, down, up, strict=True)
        ]

    @property
    def queued(self) -> bool:
        """Whether the messages of a link move one at a time."""
        return self._network.queued

    def transfers(self, client: int, turn: Turn) -> tuple[float, float]:
        """Return the seconds that the client's gradient and its embedding move, alone on their links."""
        return self._down(client, turn.before, True), self._up(client, turn.now)

    def occupied(self, client: int, turn: Turn) -> tuple[float, float]:
        """Return the least seconds between gradients like the client's, and between embeddings, on busy links."""
        if self.queued:
            return self.transfers(client, turn)
        down, up = self._bits_down(client, turn.before, True), self._bits_up(client, turn.now)
        return down / self._rate(SERVER, "up"), up / self._rate(SERVER, "down")

    def broadcast(self, turn: Turn) -> float:
        """Return the seconds in which the server's link sends a gradient to all clients."""
        alone = [self._down(client, turn.before, True) for client in self.clients]
        return math.fsum(alone) if self._network.queued or self._network.crowd(len(alone)) > 1 else max(alone)

    def _down(self, client: int, rows: int, used: bool, sharing: int = 1) -> float:
        return self._bits_down(client, rows, used) / self._bandwidth(SERVER, client, sharing)

    def _up(self, client: int, rows: int, sharing: int = 1) -> float:
        return self._bits_up(client, rows) / self._bandwidth(client, SERVER, sharing)

    def _bits_down(self, client: int, rows: int, used: bool) -> int:
        exchange, up = self._exchange(client, rows), self._codec.towards(SERVER)
        specs = self._specs(exchange.down) if used else {}
        return 8 * self._codec.towards(client).size_of(specs, 0, dict.fromkeys(exchange.passed_on, up))

    def _bits_up(self, client: int, rows: int) -> int:
        ids = rows if self._training.batches == "own" else 0
        return 8 * self._codec.towards(SERVER).size_of(self._specs(self._exchange(client, rows).up, self.uploaded), ids)

    def _specs(self, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype | None = None) -> dict[str, Spec]:
        return {name: Spec(shape, dtype or self._training.torch_dtype) for name, shape in shapes.items()}


def law_of(delay: Delay, what: str, factor: float = 1.0) -> Law:
    """Return the law of ``factor`` times a draw. Raises Unanalysable if draws depend on the time."""
    if delay.in_time:
        raise Unanalysable(f"{what} comes in bursts: rounds depend on the ones before")
    shortest, longest = delay.support
    if factor == 0.0 or shortest == longest:  # mixtures, maxima and observed values may be constant
        return Point(factor * shortest)
    return OfDelay(delay, 0.0, factor)
