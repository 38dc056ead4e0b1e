"""Laws of what parties do in a round, act by act, by the rules of ``docs/timing.md``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from vflsim.setting import Setting
from vflsim.streams import SERVER, party_name
from vflsim.timing.activation import Immediate, Poisson
from vflsim.timing.availability import Always
from vflsim.timing.compute import (
    AnyCompute,
    ByOperation,
    ComputeModel,
    Costed,
    Flops,
    duration,
    law as drawn_law,
)
from vflsim.timing.delays.base import Delay, OfDelay
from vflsim.timing.delays.basic import Constant
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import mixture
from vflsim.tracing.acts import (
    Act,
    Activated,
    ClientDelay,
    ClientSleep,
    ClientWork,
    ServerWork,
    ToClients,
    ToServer,
    bytes_of,
)
from vflsim.tracing.recording import Traceable
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
    """The durations of the acts of a protocol's parties. Raises Unanalysable if no law is known.

    All laws are of rounds after the first, which is shorter, since no gradient precedes it.
    """

    def __init__(self, protocol: Traceable, setting: Setting) -> None:
        self._algorithm, self.setting = protocol, setting
        self._data, self._training = setting.data, setting.training
        self._timings, self._network, self._codec = setting.timings, setting.network, setting.codec
        self.clients = setting.clients
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

    # --- the law of each act ------------------------------------------------------------------------------------------

    def _laws(self, client: int, act: Act) -> list[Law]:
        delay, about = self._timings[client].upload_delay, f"the upload delay of {party_name(client)}"
        if isinstance(act, ServerWork):  # in the client's turn
            return [self._lasting(SERVER, act.operation)]
        if isinstance(act, Activated):
            return [self._activation(client)]
        if isinstance(act, ClientWork):
            return [self._lasting(client, act.operation)] if act.by is None or client in act.by else []
        if isinstance(act, ClientSleep):
            return [Point(act.seconds)]
        if isinstance(act, ClientDelay):
            return [law_of(delay, about, act.factor)]
        if isinstance(act, ToClients):
            return [*self._latency(SERVER, client), Point(self._moving(client, act))]
        return [law_of(delay, about), *self._latency(client, SERVER), Point(self._moving(client, act))]

    def _moving(self, client: int, act: Act, sharing: int = 1) -> float:
        """Return the seconds for which a message moves, of which so many share the server's link."""
        ends = (client, SERVER) if isinstance(act, ToServer) else (SERVER, client)
        return 8 * bytes_of(act, self._codec, client) / self._bandwidth(*ends, sharing)


def law_of(delay: Delay, what: str, factor: float = 1.0) -> Law:
    """Return the law of ``factor`` times a draw. Raises Unanalysable if draws depend on the time."""
    if delay.in_time:
        raise Unanalysable(f"{what} comes in bursts: rounds depend on the ones before")
    shortest, longest = delay.support
    if factor == 0.0 or shortest == longest:  # mixtures, maxima and observed values may be constant
        return Point(factor * shortest)
    return OfDelay(delay, 0.0, factor)
