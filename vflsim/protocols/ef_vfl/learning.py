"""The learners of EF-VFL, and their message. Both ends keep a surrogate of a value, and add the sent differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

from typing_extensions import override

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.inputs import Received, in_client_order
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerStep
from vflsim.learning.states import State, named, under
from vflsim.protocols.fedbcd import (
    MODEL,
    BlockServer,
    HeldEmbedding,
    RecomputingClient,
    SharedValues,
    server_copy,
)
from vflsim.setting import ClientsMade, Learners, Setting, client_parts, server_parts
from vflsim.streams import SERVER, party_name
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.world.messages import Message


@dataclass(slots=True, eq=False)
class Difference(Message):
    """h_m − ĥ_m of a batch, (batch, embedding): the difference of the client's embedding and its surrogate."""

    kind: ClassVar[str] = "difference"
    ordered: ClassVar[bool] = True
    embedding: ClassVar[bool] = True


def surrogate(learner: PartyLearner, name: str, *shape: int) -> Tensor:
    """Return the surrogate that ``learner`` keeps under ``name``; its initial value is zeros of ``shape``."""
    if name not in learner.kept:
        learner.kept[name] = torch.zeros(shape, dtype=learner.dtype, device=learner.held.device)
    held: Tensor = learner.kept[name]
    return held


def surrogate_rows(learner: PartyLearner, client: int, batch: Batch, width: int) -> Tensor:
    """Return the rows of ``batch`` of a client's surrogate, (batch, width): a copy."""
    held = learner.held.features or learner.held.labels or {}
    whole = surrogate(learner, party_name(client), len(held["train"]), width)
    return whole[batch.tensor(whole.device)]


def add_difference(learner: PartyLearner, client: int, batch: Batch, difference: Tensor) -> Tensor:
    """Add a received difference to the rows of ``batch`` of a client's surrogate; return a copy of these rows."""
    rows = surrogate_rows(learner, client, batch, difference.shape[1]) + difference
    learner.kept[party_name(client)][batch.tensor(rows.device)] = rows
    return rows


class SharedDifferences(NamedTuple):
    """The received values of differences that the server sent: of its weights and of its own embedding of a batch."""

    batch: Batch
    values: dict[str, Handle[Tensor]]


class SurrogateServer(BlockServer):
    """Steps on surrogates ĥ_m of the clients' embeddings, and on its own h_0.

    If clients hold labels, it also keeps surrogates of its weights and of h_0, equal to the values that the clients
    have.
    """

    shared: SharedDifferences | None = None
    """The received values of the latest differences that the server sent, until the next step."""

    def surrogate_step(self, differences: Sequence[Received]) -> Operation[tuple[ServerStep, list[HeldEmbedding]]]:
        """Add the differences to the surrogates, and take a server step on the batch's rows of them."""
        embeddings = self._promised(differences)
        operation: Operation[Any] = self.server_step(embeddings)
        operation.result = (operation.result, embeddings)
        return self._adding(operation, differences, embeddings)

    def sharing_surrogate_step(
        self, differences: Sequence[Received]
    ) -> Operation[tuple[dict[str, Handle[Tensor]], list[HeldEmbedding]]]:
        """Take the same step. Return θ_0 from before the step and the server's own h_0, each minus its surrogate."""
        embeddings, arrived = self._promised(differences), self.shared
        operation: Operation[Any] = self.sharing_step(embeddings)
        values, step, batch = operation.result, operation.run, embeddings[0].batch
        changes = {name: self.promise(*value.shape) for name, value in values.items()}

        def run() -> None:
            weights = surrogate(self, MODEL, self.shared_weights)
            if arrived is not None:
                weights += arrived.values[MODEL].value
                if party_name(SERVER) in arrived.values:
                    add_difference(self, SERVER, arrived.batch, arrived.values[party_name(SERVER)].value)
            step()
            for name, difference in changes.items():
                value = values[name].value
                held = weights if name == MODEL else surrogate_rows(self, SERVER, batch, value.shape[1])
                difference.set(value - held)

        operation.run, operation.result = run, (changes, embeddings)
        operation.promises = (*operation.promises, *changes.values())
        operation.nbytes += sum(difference.nbytes for difference in changes.values())
        return self._adding(operation, differences, embeddings, *(() if arrived is None else arrived.values.values()))

    def _promised(self, differences: Sequence[Received]) -> list[HeldEmbedding]:
        ordered = in_client_order(differences)
        return [HeldEmbedding(each.sender, each.batch, self.promise(*each.value.shape)) for each in ordered]

    def _adding(
        self,
        operation: Operation[Any],
        differences: Sequence[Received],
        embeddings: Sequence[HeldEmbedding],
        *more: Handle[Tensor],
    ) -> Operation[Any]:
        step, sent = operation.run, {each.sender: each.value for each in differences}

        def run() -> None:
            for each in embeddings:
                each.value.set(add_difference(self, each.sender, each.batch, sent[each.sender].value))
            step()

        operation.run, operation.inputs = run, (*sent.values(), *more)
        operation.promises = (*(each.value for each in embeddings), *operation.promises)
        operation.nbytes += sum(each.value.nbytes for each in embeddings)
        return operation


class Sent(NamedTuple):
    """A difference under way: its round, its batch, and the value that arrives."""

    round: int
    batch: Batch
    value: Handle[Tensor]


class SurrogateClient(ClientLearner):
    """Sends differences, and steps along the server's gradient.

    It adds a difference to its surrogate at its next computation: when it receives the gradient of the same round, or,
    after a crash, in a later round, which begins only after the server has received the difference. After a crash in
    the same round it sends the same difference again. Therefore both ends add the same numbers. So does a process that
    takes its place, since a codec has the same randomness for the same difference.
    """

    sent: Sent | None = None
    """The difference that is not yet added."""
    made: Sent | None = None
    """The latest difference as it was computed, until the next step."""

    def difference(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Embed a training batch: h_m − ĥ_m, a handle of shape (batch, embedding)."""
        operation = _difference(self, batch)
        return self._adding(operation, Sent(batch.index, batch, operation.result))

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Step along the gradient received."""
        return self._adding(super().client_step(batch, gradient))

    @override
    def under_way(self) -> dict[str, Tensor]:
        """Return the latest difference, too, of which this process may or may not have sent a part."""
        if self.made is None:
            return super().under_way()
        number, batch, value = self.made
        fields = {"round": torch.tensor(number), "rows": torch.tensor(batch.ids), "origin": torch.tensor(batch.origin)}
        return super().under_way() | named("made", fields | {"value": value.value})

    @override
    def take_up(self, under_way: State, send: Callable[[Any], None]) -> None:
        super().take_up(under_way, send)
        if fields := under("made", under_way):
            number, value = int(fields["round"]), fields["value"]
            held = Handle.of(value.clone())
            batch = Batch(number, fields["rows"].numpy().copy(), int(fields["origin"]))
            message = Difference(batch, held, round=number)
            send(message)
            assert message.value is not None, "a codec leaves a tensor in its place"
            self.made, self.sent = Sent(number, batch, held), Sent(number, batch, message.value)

    def _adding(self, operation: Operation[Any], latest: Sent | None = None) -> Operation[Any]:
        """Have an operation add the difference that is not yet added, and leave ``latest`` as the latest one."""
        sent, run, commit = self.sent, operation.run, operation.commit

        def add_and_run() -> None:
            if sent is not None:
                add_difference(self, self.party, sent.batch, sent.value.value)
            run()

        def commit_both() -> Any:
            self.sent, self.made = None, latest
            return commit() if commit is not None else None

        operation.run, operation.commit = add_and_run, commit_both
        if sent is not None:
            operation.inputs = (*(operation.inputs or ()), sent.value)
        return operation


class SharedSurrogateClient(RecomputingClient):
    """Keeps the surrogates of all embeddings and of the server's weights; computes its gradients itself."""

    def difference(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Embed a training batch: h_m − ĥ_m, a handle of shape (batch, embedding)."""
        return _difference(self, batch)

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Add ``SharedValues`` of differences to the surrogates, and step at them and at the present h_m."""
        operation, shared = super().client_step(batch, gradient), cast("SharedValues", gradient)

        def run() -> None:
            for client in self.widths:
                add_difference(self, client, batch, shared[party_name(client)].value)
            surrogate(self, MODEL, *shared[MODEL].shape).add_(shared[MODEL].value)
            self._step_at_surrogates(batch)

        operation.run = run
        return operation

    def step_again(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Take another step at the same surrogates."""
        operation = super().step_again(batch, gradient)
        operation.run = partial(self._step_at_surrogates, batch)
        return operation

    def _step_at_surrogates(self, batch: Batch) -> None:
        others = {m: surrogate_rows(self, m, batch, width) for m, width in self.widths.items() if m != self.party}
        self.step_at(batch, self.kept[MODEL], others)


def _difference(learner: ClientLearner, batch: Batch) -> Operation[Handle[Tensor]]:
    operation = learner.embed(batch)
    h, result, run = operation.result, learner.promise(*operation.result.shape), operation.run

    def compute() -> None:
        run()
        result.set(h.value - surrogate_rows(learner, learner.party, batch, learner.width))

    operation.run, operation.result, operation.promises = compute, result, (h, result)
    return operation


def surrogate_learners(setting: Setting, seed: int, labels: str) -> Learners[Any, Any]:
    """Make the learners; ``labels``: whether clients hold them (``shared``)."""
    parts = server_parts(setting, seed)

    def sharing(client: int) -> SharedSurrogateClient:
        return SharedSurrogateClient(client_parts(setting, client, seed), server_copy(parts))

    def private(client: int) -> SurrogateClient:
        return SurrogateClient(client_parts(setting, client, seed))

    if labels == "shared":
        return Learners(SurrogateServer(parts), ClientsMade(SharedSurrogateClient, setting.clients, sharing))
    return Learners(SurrogateServer(parts), ClientsMade(SurrogateClient, setting.clients, private))
