"""What a party knows of its run and notes in it, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Generic

from typing_extensions import TypeVar

from vflsim.codecs.frame import ONLY
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.watch import Watch
from vflsim.streams import party_name
from vflsim.vocabulary.on_demand import Tensor
from vflsim.world.messages import Message
from vflsim.world.outages import Outages
from vflsim.world.party import Party
from vflsim.world.task import Task
from vflsim.world.transport import Until

T = TypeVar("T")
L = TypeVar("L", default=Any)


class Standpoint(Generic[L]):
    """A party's place in a run. Party 0 is the server; clients keep their numbers from the scenario.

    ``clients`` are the participants in client order, ``learner`` is the party's side of the learning plane, of type
    ``L``. ``watch`` watches over operations of code from outside.
    """

    def __init__(self, state: Party, learner: L, watch: Watch | None = None) -> None:
        self.state, self.learner, self.watch = state, learner, watch
        self.party, self.shared = state.number, state.run
        self.world, self.clients = state.run.world, state.run.clients
        self._outages: Outages | None = state.run.outages
        self._processor = state.processor
        self._scopes, self._open = state.scopes, state.scopes.open
        self._turns = state.run.world.takes_turns
        self._gate = None if self._outages is None else self._outages.gate(self.world, self.party)

    @property
    def now(self) -> float:
        """Seconds since the start. Raises ``RunError`` in a replay of a live run, whose times mean nothing."""
        return self.world.read_clock()

    # --- rounds and outages -------------------------------------------------------------------------------------

    @property
    def current_round(self) -> int:
        """The round in progress, from 0: how many are complete or given up."""
        return self.shared.recorder.current_round

    def rounds(self, over: str | None = None) -> Iterator[int]:
        """Number the rounds that this party takes part in.

        The first is the round in progress, at the start and after every crash: a crashed party's coroutine begins anew.
        The next one is k + 1. A party that can fall behind names the kind of message that ends a round, ``over``: then
        the next round follows the latest one that such a message here has ended, and these messages are taken.

        Example: ``for k in node.rounds(over="gradient"): …``
        """
        number = self.current_round
        while True:
            yield number
            ended = [] if over is None else self.arrived(over)
            number = 1 + max([number, *[message.round for message in ended]]) if ended else 1 + number

    def skip_round(self) -> None:
        """Give up the round in progress: it has no server step, and the next one begins.

        Example: ``node.skip_round()``
        """
        self.shared.recorder.skip()

    @property
    def given_up(self) -> int:
        """How many rounds were given up since the latest server step."""
        return self.shared.recorder.skipped_in_a_row

    def finish(self, reason: str) -> None:
        """End the run as a stop rule does: its results stand, with ``reason``.

        Example: ``node.finish("no client is left")``
        """
        self.world.finish(reason)

    @property
    def returned(self) -> bool:
        """Whether the party has crashed since the run began, and is back."""
        return self._outages is not None and self._outages.returned(self.party)

    @property
    def down(self) -> bool:
        """Whether the party is down at this moment, by a crash or a pause."""
        return self._outages is not None and self._outages.down(self.party)

    @property
    def gone(self) -> frozenset[int]:
        """The clients that are down for good."""
        return frozenset() if self._outages is None else frozenset(self._outages.gone)

    # --- batches, messages and records --------------------------------------------------------------------------

    def batch(self, index: int) -> Batch:
        """Return the ``index``-th mini-batch of the sequence that all parties share.

        Example: ``batch = node.batch(k)``
        """
        return self.shared.sequence.batch(index)

    def next_batch(self) -> Batch:
        """Return this client's next mini-batch: of its own sequence, or of its own place in the shared one.

        Example: ``batch = node.next_batch()``
        """
        return self.state.next_batch()

    def arrived(self, kind: str, round: int | None = None) -> list[Message]:
        """Take the messages of ``kind`` that are here (of one round), without waiting.

        Example: ``late = node.arrived("embedding")``
        """
        return self.state.mailbox.take(kind, round)

    def in_any_order(self, kind: str) -> None:
        """Keep messages of ``kind`` until they are received, even when one of a later round is received first.

        Example: ``node.in_any_order("embedding")``
        """
        self.state.mailbox.in_any_order.add(kind)

    def as_received(self, sent: Handle[T]) -> Handle[T]:
        """Return what the receivers get of a tensor that this party has sent, by a codec without memory.

        Example: ``received = node.as_received(h)``
        """
        return self.state.wire.as_received(sent)

    def record(self, what: str, /, **fields: Any) -> None:
        """Add a row to the run's table ``what``; ``time_s`` and ``party`` are added.

        A handle's value is written when the run has ended, null if there is none. Raises ``ProtocolError`` for a value
        that no column can hold, or not that of the rows before.

        Example: ``node.record("waits", round=k, late=len(late))``
        """
        added = {"time_s": self.world.now(), "party": party_name(self.party)}
        self.shared.recorder.own.add(what, added, fields, self.shared.protocol)

    def derive(
        self,
        kind: str,
        batch: Batch,
        inputs: Sequence[Handle[Any]],
        compute: Callable[[], Tensor] | None = None,
        name: str = ONLY,
    ) -> None:
        """Add what this party can compute from messages to its views, if the run records them; nothing else changes.

        ``compute`` returns a row for each row of ``batch`` from the values of ``inputs``; by default the first of them.

        Example: ``node.derive("mean", batch, [mean.value])``
        """
        if self.shared.views is not None:
            self.shared.views.derive(self.party, kind, batch.ids, inputs, compute, name)

    # --- structure --------------------------------------------------------------------------------------------------

    def until(self, kind: str, round: int | None = None) -> Until:
        """Return a block whose body is abandoned the moment such a message arrives.

        Example: ``async with node.until("gradient", round=k): await node.activated()``
        """
        return Until(self._scopes, kind, round)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Task:
        """Run ``coroutine`` beside the main line; its failure is the party's.

        Example: ``node.start(self.answer_queries(node))``
        """
        task = self.world.current()
        started = self.world.spawn(coroutine, f"{party_name(self.party)} (beside)", self.party, task.observer)
        if self._outages is not None:
            self._outages.adopt(self.party, started)
        return started
