"""A server that trains on embeddings in one go, and guesses the classes of rows that others do not know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation, finite_loss, set_loss
from vflsim.learning.learners.inputs import Received, in_client_order
from vflsim.learning.learners.server import ServerLearner, ServerParts
from vflsim.protocols.fedbcd import HeldEmbedding
from vflsim.streams import SERVER, generator, torch_seed
from vflsim.vocabulary.on_demand import Tensor, dtype, nn, torch


class FewShotServer(ServerLearner):
    """Takes gradients at its first weights for the first embeddings, and trains on all later ones in one go."""

    def __init__(self, parts: ServerParts, epochs: int, threshold: float, seed: int) -> None:
        super().__init__(parts)
        self.epochs, self.threshold, self.seed = epochs, threshold, seed

    def server_step(self, embeddings: Sequence[Received], refreshed: Sequence[Received] = ()) -> Operation[Any]:
        """Answer the first embeddings; train on later ones."""
        operation, batch = super().server_step(embeddings, refreshed), embeddings[0].batch
        passes = self.epochs if batch.index else 1
        operation.cost = lambda kind, rows: passes * self._cost(kind, rows)
        operation.units = passes * len(batch) / self.parts.batch
        return operation

    def _run_step(
        self,
        groups: list[tuple[Batch, list[Received]]],
        arrivals: list[Received],
        promised: dict[int, Handle[Tensor]],
        loss: Handle[float],
        where: str,
    ) -> None:
        ((batch, messages),) = groups
        if batch.index:
            self._train(batch, messages)
        (used,) = self.inputs_of(groups, arrivals)
        value = self.parts.task.loss(self.top(used.joined), self.y(batch))
        set_loss(loss, value.detach(), where=where)
        _, leaves = self.top.gradients(value, used.leaves)
        for message, received in zip(used.fresh, used.spread(leaves), strict=True):
            if id(message) in promised:
                promised[id(message)].set(received)

    def _train(self, batch: Batch, messages: Sequence[Received]) -> None:
        rng = generator(self.seed, SERVER, f"few_shot/train/{batch.index}")
        for _ in range(self.epochs):
            for places in _parts(rng.permutation(len(batch)), self.parts.batch):
                part = Batch(batch.index, batch.ids[places], batch.origin)
                chosen = torch.from_numpy(places).to(self.device)
                held: list[Received] = [
                    HeldEmbedding(each.sender, part, Handle.of(each.value.value[chosen])) for each in messages
                ]
                self.step_on(self.inputs_of([(part, held)], held), check_loss)

    def guess(self, embeddings: Sequence[Received], others: Sequence[Received]) -> Operation[dict[int, Handle[Tensor]]]:
        """Train on the aligned rows, and guess the classes of each client's other rows, (rows,): −1 if unsure."""
        ordered, batch = in_client_order(embeddings), embeddings[0].batch
        known = {message.sender: message.value for message in others}
        result = {client: self.promise(handle.shape[0], dtype=dtype("int16")) for client, handle in known.items()}
        loss: Handle[float] = Handle()

        def run() -> None:
            self._train(batch, ordered)
            with torch.no_grad():
                own = [] if self.embedding is None else [self.embedding(self.x(batch))]
                aligned = [*own, *(message.value.value for message in ordered)]
                set_loss(loss, self.parts.task.loss(self.predict(aligned), self.y(batch)))
            for place, message in enumerate(ordered, start=len(own)):
                queries, keys = known[message.sender].value, aligned[place]
                with torch.no_grad():
                    shares = torch.softmax(queries @ keys.T / math.sqrt(keys.shape[1]), 1)
                    joined = [queries if j == place else shares @ each for j, each in enumerate(aligned)]
                    prediction = self.predict(joined)
                model = self._sure(prediction)
                alone = self._sure(self._alone(batch, message, prediction.shape[1])(queries))
                agree = (model[1] == alone[1]) & (torch.minimum(model[0], alone[0]) >= self.threshold)
                result[message.sender].set(torch.where(agree, model[1], -1).to(torch.int16))

        rows, passes = sum(handle.shape[0] for handle in known.values()), self.epochs
        senders = [message.sender for message in ordered]
        return self.operation(
            "server_step", run, result, inputs=[message.value for message in (*embeddings, *others)], rows=len(batch),
            promises=(loss, *result.values()), units=(passes * len(batch) + rows) / self.parts.batch, counts="round",
            cost=lambda: passes * self._cost("server_step", len(batch)) + self.top.forward_flops(rows),
            commit=lambda: self.staleness.complete([(batch, senders)], loss, senders),
        )  # fmt: skip

    def _alone(self, batch: Batch, message: Received, outputs: int) -> nn.Module:
        """Return a classifier of one client's embeddings, trained on the aligned rows."""
        h: Tensor = message.value.value
        seed = torch_seed(self.seed, SERVER, f"few_shot/alone/{message.sender}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = nn.Linear(h.shape[1], outputs, dtype=self.dtype).to(self.device)
        optimizer, rng = self.parts.optimizer.build(model.parameters()), generator(self.seed, SERVER, f"alone/{seed}")
        for _ in range(self.epochs):
            for places in _parts(rng.permutation(len(batch)), self.parts.batch):
                optimizer.zero_grad()
                prediction = model(h[torch.from_numpy(places).to(self.device)])
                torch.autograd.backward(self.parts.task.loss(prediction, self.y(Batch(0, batch.ids[places]))))
                optimizer.step()
        return model.requires_grad_(False)

    def _sure(self, prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probability of the likeliest class of each row, and that class."""
        if prediction.shape[1] == 1:
            prediction = torch.cat([torch.zeros_like(prediction), prediction], 1)
        sure, classes = torch.softmax(prediction, 1).max(1)
        return sure, classes


def check_loss(loss: Tensor) -> None:
    """Raise ``NonFiniteError`` for a loss that is none."""
    finite_loss(loss)


def _parts(rows: Any, size: int) -> list[Any]:
    return [rows[first : first + size] for first in range(0, len(rows), size)]
