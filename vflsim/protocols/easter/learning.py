"""The parties of EASTER."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TypeVar

from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Operation, set_loss
from vflsim.learning.learners.inputs import EmbedWork, Received, Rows, StepWork, in_client_order
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.releases import Release
from vflsim.learning.learners.staleness import Staleness
from vflsim.protocols.answering import of_parties
from vflsim.protocols.base import Traits
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.vocabulary.on_demand import Tensor, torch

PREDICTORS = Traits(
    waits_for_all=True,
    rounds_correspond=True,
    active_features=True,
    predictors=True,
    party_scores=True,
    mechanism=False,
    refuses_absent_rows="every party predicts every row",
)
"""Rounds in which every party trains a prediction net of its own."""


class TwoNets(PartyLearner):
    """Holds h(θ, D), of ``models.client`` or ``models.active``, and p(θ, E), of ``models.predictor`` or
    ``models.server``. One optimiser rule trains both."""

    def __init__(self, setting: Setting, party: int, seed: int) -> None:
        super().__init__(setting.data.parts(party, setting.training, seed, blinded_sum=setting.blinded_sum))
        model, shape = setting.embedding_model_of(party), setting.feature_shape_of(party)
        self.width, self.outputs, rule = model.embedding, setting.data.outputs, setting.optimizer_of(party)
        embed, predict = (
            partial(model.build, shape),
            partial(setting.predictor_of(party).build, self.width, self.outputs),
        )
        # These orders give the initial weights of a split network: bottoms, top, and the active party's bottom.
        if party != SERVER:
            self.embedding = self.add_model("embedding", embed, rule)
        self.predictor = self.add_model("predictor", predict, rule, inputs=(self.width,))
        if party == SERVER:
            self.embedding = self.add_model("embedding", embed, rule)

    def whole(self, x: Tensor) -> Tensor:
        """Predict from the party's own features alone: p(h(x)), (rows, outputs)."""
        return self.predictor(self.embedding(x))

    def flops(self, kind: str, rows: int) -> float:
        """Count the FLOPs of an embedding, a prediction, or the backward passes of a step."""
        if kind in ("embed", "predict"):
            return (self.embedding if kind == "embed" else self.predictor).forward_flops(rows)
        return self.embedding.backward_flops(rows) + self.predictor.backward_flops(rows)


# --- parties ----------------------------------------------------------------------------------------------------------


T = TypeVar("T")


@dataclass(slots=True)
class PredictWork:
    """A party predicts ``rows`` from the global embedding that it has ``received``."""

    place: int
    rows: Rows
    received: Handle[Tensor]


class EasterParty(TwoNets):
    """A party that predicts from the global embedding. ``parties`` is C."""

    def __init__(self, setting: Setting, party: int, seed: int) -> None:
        super().__init__(setting, party, seed)
        self.parties = 1 + len(setting.clients)
        self._embedded = self.add_graph("embedded", self.embedding, self.embedding)
        self._predicted = self.add_graph("predicted", self.predictor, self.predictor, features=False)

    # --- a round ----------------------------------------------------------------------------------------------------

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Embed the party's features of ``batch``, (b, embedding); a passive party blinds them (Eq. 6)."""
        release, rows = self.release("embed", batch), len(batch)
        h = self.promise(rows, self.width, dtype=release.dtype)
        operation = self.operation(
            "embed", lambda: h.set(release(self._embedded.forward(batch))), h,
            rows=rows, cost=partial(self.flops, "embed", rows),
        )  # fmt: skip
        return self.together(operation, "embed", rows, EmbedWork(self.place, batch, release, steps=True))

    def predict(self, received: Received) -> Operation[Handle[Tensor]]:
        """Predict from the global embedding of a batch, (b, outputs)."""
        batch, value, prediction = received.batch, received.value, self.promise(len(received.batch), self.outputs)
        operation = self.operation(
            "predict", lambda: prediction.set(self._predicted.forward(batch, value.value)), prediction,
            inputs=[value], rows=len(batch), cost=partial(self.flops, "predict", len(batch)),
        )  # fmt: skip
        return self.together(operation, "predict", len(batch), PredictWork(self.place, batch, value))

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Step both nets along ∂L_k/∂R_k, received for ``batch``."""
        value = gradient.value
        operation = self.operation(
            "client_step", lambda: self._descend_both(batch, value.value), None,
            inputs=[value], rows=len(batch), cost=partial(self.flops, "client_step", len(batch)), counts="update",
        )  # fmt: skip
        return self.together(operation, "client_step", len(batch), StepWork(self.place, batch, value))

    def together(self, operation: Operation[T], kind: str, rows: int | Split, work: object) -> Operation[T]:
        """Have the party's stack, if there is one, run ``operation`` with those that are alike."""
        if self.stack is not None:
            operation.kernel, operation.work = self.stack.kernel(kind, rows), work
            operation.waits_for_company = isinstance(rows, str)
        return operation

    def _descend_both(self, batch: Batch, gradient: Tensor) -> None:
        """Step the prediction net along ∂L/∂R, and the embedding net along ∂L/∂E_k = (∂L/∂E) / C."""
        (slope,) = self._predicted.backward(batch, gradient)
        assert slope is not None, "a prediction depends on the global embedding"
        self._embedded.backward(batch, slope / self.parties)

    def flops(self, kind: str, rows: int) -> float:
        """Count the masks of an embedding, too."""
        masks = self.blinder.flops(rows * self.width) if kind == "embed" and self.blinder is not None else 0.0
        return super().flops(kind, rows) + masks

    # --- evaluation -------------------------------------------------------------------------------------------------

    def embed_split(self, split: Split) -> Operation[Handle[Tensor]]:
        """Embed all rows of a split."""
        x = self.features(split)
        h, cost = self.promise(len(x), self.width), partial(self.embedding.forward_flops, len(x))
        operation = self.operation("evaluate", lambda: h.set(self.embedding(x)), h, rows=len(x), cost=cost)
        whole = Release(None, "evaluate", slice(None))
        return self.together(operation, "embed_split", split, EmbedWork(self.place, split, whole))

    def predict_split(self, received: Received, split: Split) -> Operation[Handle[Tensor]]:
        """Predict from the global embedding of all rows of a split."""
        value, rows = received.value, received.value.shape[0]
        prediction, cost = self.promise(rows, self.outputs), partial(self.flops, "predict", rows)
        operation = self.operation(
            "evaluate", lambda: prediction.set(self.predictor(value.value)), prediction,
            inputs=[value], rows=rows, cost=cost,
        )  # fmt: skip
        return self.together(operation, "predict_split", split, PredictWork(self.place, split, value))


class ActiveParty(EasterParty):
    """The party that holds the labels. It joins the embeddings, and computes the loss of every party."""

    def __init__(self, setting: Setting, seed: int) -> None:
        super().__init__(setting, SERVER, seed)
        self.clients, self.staleness = setting.clients, Staleness(setting.clients, setting.data.rows)
        self.losses_together = False
        """Whether the losses of all predictions are computed as one: each is a mean over the rows."""

    def join(self, active: Handle[Tensor], theirs: Sequence[Received], kind: str = "join") -> Operation[Handle[Tensor]]:
        """Compute E = (E_a + Σ_k E_k) / C (Eq. 7). Like every aggregate, it costs no FLOPs.

        The E_k of a round are blinded (``kind`` join), those of an evaluation are not.
        """
        others, mean = _values(theirs), self.promise(*active.shape)
        group = self.held.blinded_sum if kind == "join" else None

        def run() -> None:
            values = {client: each.value for client, each in others.items()}
            if group is None:
                total = torch.stack([active.value, *values.values()]).sum(0)
            else:
                total = active.value + group.total(values)
            mean.set(total / self.parties)

        return self.operation(kind, run, mean, inputs=[active, *others.values()], rows=active.shape[0], units=0)

    def server_step(
        self, batch: Batch, mine: Handle[Tensor], theirs: Sequence[Received]
    ) -> Operation[dict[int, Handle[Tensor]]]:
        """Compute the loss L_k of every prediction, step along its own, and return ∂L_k/∂R_k of every client.

        Raises ``NonFiniteError`` when it runs.
        """
        predictions, loss = {SERVER: mine, **_values(theirs)}, Handle[float]()
        gradients = {client: self.promise(len(batch), self.outputs) for client in self.clients}

        def run() -> None:
            values = [prediction.value for prediction in predictions.values()]
            mean, (active, *others) = (self._together if self.losses_together else self._one_by_one)(values, batch)
            set_loss(loss, mean)
            for gradient, slope in zip(gradients.values(), others, strict=True):
                gradient.set(slope)
            self._descend_both(batch, active)

        return self.operation(
            "server_step", run, gradients, inputs=predictions.values(), promises=[loss, *gradients.values()],
            rows=len(batch), cost=partial(self.flops, "server_step", len(batch)), counts="round",
            commit=lambda: self.staleness.complete([(batch, self.clients)], loss),
        )  # fmt: skip

    def _one_by_one(self, predictions: Sequence[Tensor], batch: Batch) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the mean of the predictions' losses, and the gradient of each loss by its own prediction."""
        leaves = [prediction.detach().clone().requires_grad_() for prediction in predictions]
        losses = torch.stack([self.loss(leaf, batch) for leaf in leaves])
        return losses.detach().mean(), torch.autograd.grad(losses.sum(), leaves)  # each loss depends on one prediction

    def _together(self, predictions: Sequence[Tensor], batch: Batch) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the same by one loss, the mean over the rows of all predictions."""
        leaf = torch.stack([*predictions]).detach().requires_grad_()
        assert self.held.task is not None, "the active party has labels"
        mean = self.held.task.mean_loss(leaf, self.y(batch))
        (slopes,) = torch.autograd.grad(mean * len(leaf), leaf)
        return mean.detach(), slopes.unbind()

    def predict_mean(self, embeddings: Sequence[Tensor | None]) -> Tensor:
        """Predict from the mean of the parties' embeddings, None where one is missing, with a graph."""
        here = [h for h in embeddings if h is not None]
        return self.predictor(torch.stack(here).sum(0) / len(here))

    def evaluate(
        self, split: Split, mean: Handle[Tensor], theirs: Sequence[Received]
    ) -> Operation[Handle[dict[str, float]]]:
        """Return each party's loss and metrics, and their means over the parties."""
        predictions, result = _values(theirs), Handle[dict[str, float]]()

        def run() -> None:
            scores = {SERVER: self.scores(self.predictor(mean.value), split)}
            scores |= {client: self.scores(each.value, split) for client, each in predictions.items()}
            means = {name: fmean(each[name] for each in scores.values()) for name in scores[SERVER]}
            result.set(means | of_parties(scores))

        rows = mean.shape[0]
        return self.operation(
            "evaluate", run, result, inputs=[mean, *predictions.values()], rows=rows,
            cost=partial(self.flops, "predict", rows),
        )  # fmt: skip


def _values(messages: Sequence[Received]) -> dict[int, Handle[Tensor]]:
    return {message.sender: message.value for message in in_client_order(messages)}
