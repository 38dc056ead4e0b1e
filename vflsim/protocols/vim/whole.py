"""Clients that hold whole models, f(x; θ_k) W_k, and servers without one; those of VIMADMM-J take local steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from vflsim.learning.batches import Batch, Split
from vflsim.learning.batching.stack import Backward, Stack, checked
from vflsim.learning.execution.operations import LOCAL, Handle, Operation, check_finite, set_loss
from vflsim.learning.learners.client import ClientLearner, ClientParts, affine_layers
from vflsim.learning.learners.inputs import ByEmbeddings, PartyParts, Received, in_client_order
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.party_model import PartyModel, descend
from vflsim.learning.learners.server import ServerStep
from vflsim.learning.learners.staleness import Staleness
from vflsim.learning.optimizers import STACKED
from vflsim.learning.states import named, under
from vflsim.protocols.vim.admm import AdmmStep, ByLogits, Duals, round_step
from vflsim.setting import ClientsMade, Learners, Setting, client_parts, server_parts, stack_split_learners
from vflsim.streams import SERVER
from vflsim.vocabulary.on_demand import Tensor, functional, nn, torch

Combine = Literal["sum", "mean"]


class WholeClient(ClientLearner):
    """A client whose embedding operations give its logits o = f(x; θ_k) W_k, (rows, d_c), which it releases.

    θ_k is trained by ``training.client_optimizer``, W_k by ``training.server_optimizer``.
    """

    def __init__(self, parts: ClientParts, head: PartyModel, outputs: int) -> None:
        super().__init__(parts)
        self.head = self.own(head)
        self.width = outputs
        self._uploaded = self._add_upload(self.embedding, self.head)

    def flops(self, kind: str, rows: int) -> float:
        """Count the FLOPs of an operation on both models."""
        return super().flops(kind, rows) + (
            self.head.backward_flops(rows) if kind == "client_step" else self.head.forward_flops(rows)
        )

    @property
    def inner_layers(self) -> Sequence[nn.Module]:
        """All layers of the embedding model. Raises ValueError (``affine_layers``)."""
        return affine_layers(self.embedding.module)

    def _h(self, features: Tensor) -> Tensor:
        return self.bounded(self.head(self.embedding(features)))


def head_of(setting: Setting, client: int, seed: int) -> PartyModel:
    """Return the model W_k of a client: its rows of the server's model in protocols that have one there."""
    place = setting.clients.index(client)
    width, outputs, start = setting.widths[place], setting.data.outputs, sum(setting.widths[:place])

    def draft() -> nn.Module:
        return nn.Linear(width, outputs, bias=False)

    def build() -> nn.Module:
        head, whole = draft().to(setting.device, setting.dtype), server_parts(setting, seed).build()
        head.load_state_dict({"weight": whole.state_dict()["weight"][:, start : start + width]})
        return head

    return PartyModel("head", build, setting.optimizer_of(SERVER), (width,), setting.dtype, True, draft)


def whole_clients(
    setting: Setting, seed: int, make: Callable[[ClientParts, PartyModel, int], WholeClient]
) -> Mapping[int, WholeClient]:
    """Return the clients with their heads, in client order."""

    def new_client(client: int) -> WholeClient:
        return make(client_parts(setting, client, seed), head_of(setting, client, seed), setting.data.outputs)

    return ClientsMade(WholeClient, setting.clients, new_client)


class LogitsServer(PartyLearner):
    """Predicts by the sum, or the mean, of the clients' logits. It has labels and no model."""

    def __init__(self, setting: Setting, combine: Combine = "sum") -> None:
        data = setting.data
        super().__init__(
            PartyParts(
                party=SERVER,
                dtype=setting.dtype,
                batch=setting.batch,
                device=setting.device,
                labels=data.labels,
                task=data.task,
            )
        )
        self.task, self.outputs, self._combine = data.task, data.outputs, combine
        self.staleness = Staleness(setting.clients, data.rows)

    def server_step(self, messages: Sequence[Received]) -> Operation[Any]:
        """Compute ∂ℓ/∂o^k for every client, from messages of (b, d_c). Raises ``NonFiniteError`` when it runs."""
        ordered, step = in_client_order(messages), ServerStep()
        promised = [step.promise(message) for message in ordered]

        def run() -> None:
            prediction = self.prediction(ordered).requires_grad_()
            loss = self.task.loss(prediction, self.y(ordered[0].batch))
            set_loss(step.loss, loss.detach())
            (gradient,) = torch.autograd.grad(loss, prediction)
            received = gradient / len(ordered) if self._combine == "mean" else gradient
            for handle in promised:
                handle.set(received)

        return round_step(self, ordered, step, promised, run)

    def prediction(self, messages: Sequence[Received]) -> Tensor:
        """Return Σ_k o^k, or the mean, of messages in client order."""
        return self.combined([message.value.value for message in messages])

    def combined(self, logits: Sequence[Tensor | None]) -> Tensor:
        """Return the sum, or the mean, of the clients' logits, None where a client's are missing."""
        together = torch.stack([o for o in logits if o is not None])
        return together.mean(0) if self._combine == "mean" else together.sum(0)

    def evaluate(self, split: Split, answers: Sequence[Received]) -> Operation[Handle[dict[str, float]]]:
        """Compute the loss and the task's metrics on a split, from messages of (rows of the split, d_c)."""
        result: Handle[dict[str, float]] = Handle()
        rows, ordered = len(self.labels(split)), in_client_order(answers)

        def run() -> None:
            result.set(self.scores(self.prediction(ordered), split))

        inputs = [message.value for message in ordered]
        return self.operation("evaluate", run, result, inputs=inputs, rows=rows, units=rows / self.held.batch)


class JointAdmmServer(LogitsServer):
    """Holds λ and z of every training row, and no model."""

    def __init__(self, setting: Setting, rho: float) -> None:
        super().__init__(setting)
        self.duals = Duals(self, self.task, self.outputs, rho)

    def server_step(self, messages: Sequence[Received]) -> Operation[Any]:
        """Update z and λ for the rows of the round, and compute all s^k = z − Σ_{i≠k} o^i (VIM Eq. 17–19).

        The loss is that of the predictions. Raises ``NonFiniteError`` when it runs.
        """
        ordered = in_client_order(messages)
        rows = len(ordered[0].batch)
        step = AdmmStep(self.promise(rows, self.outputs))
        step.residuals = {message.sender: self.promise(rows, self.outputs) for message in ordered}

        def run() -> None:
            prediction, batch = self.prediction(ordered), ordered[0].batch
            set_loss(step.loss, self.task.loss(prediction, self.y(batch)).detach())
            z, duals = self.duals.update(batch, prediction)
            step.duals.set(duals)
            for message in ordered:
                step.residuals[message.sender].set(z - prediction + message.value.value)

        return round_step(self, ordered, step, step.promises, run)


class JointAdmmClient(WholeClient):
    """Computes logits, and takes local steps of its head and of its embedding model in turn."""

    def __init__(self, parts: ClientParts, head: PartyModel, outputs: int, rho: float) -> None:
        super().__init__(parts, head, outputs)
        self._gradient = ByLogits(rho)

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Compute the logits of a batch: a handle of shape (batch, d_c). No gradient comes back for them."""
        return self.answer(batch, "embed")

    def client_step(self, batch: Batch, variables: Any) -> Operation[None]:
        """Take one local step of W_k, and then one of θ_k at the new W_k (VIM Eq. 20, 21; Alg. 3, lines 14, 15).

        Both are on means over the rows. The step recomputes the logits without the mechanism. Raises ``NonFiniteError``
        when it runs.
        """
        received = [variables["duals"], variables["residuals"]]

        def run() -> None:
            duals, residuals = (handle.value for handle in received)
            h = self.embedding(self.x(batch))
            o = self.head(h.detach())
            self._descend(o, self._gradient(o.detach(), duals, residuals), self.head)
            o = functional.linear(h, self.head.module.get_parameter("weight").detach())
            self._descend(o, self._gradient(o.detach(), duals, residuals), self.embedding)

        def cost() -> float:
            # ∇W_k and ∇h need different products, so W_k is applied once more than in the passes through both models.
            return (
                self.embedding.training_flops(len(batch))
                + 2 * self.head.forward_flops(len(batch))
                + (self.head.backward_flops(len(batch)))
            )

        operation = self.operation("client_step", run, None, rows=len(batch), cost=cost)
        return self.stepping_locally(operation, batch, self._gradient, received)

    def _descend(self, o: Tensor, gradient: Tensor, model: PartyModel) -> None:
        check_finite(gradient, LOCAL)
        descend([o], [gradient], [model])


# --- stacks of clients ------------------------------------------------------------------------------------------------


class WholeStack(Stack):
    """S clients with logits o = f(x; θ_k) W_k; the last of the ``parameters`` are the heads, (S, d_c, d_f).

    θ_k of all clients are those of a stack of ``embeddings``, whose optimiser steps them. The heads have their own.
    """

    def __init__(self, embeddings: Stack) -> None:
        self._embeddings = embeddings
        super().__init__(embeddings.learners, embeddings.features, joint=False, joint_evaluation=False)
        self.optimizer = embeddings.optimizer

    def _side_by_side(self) -> list[Tensor]:
        models = [learner.head for learner in self._embeddings.learners if isinstance(learner, WholeClient)]
        heads = torch.stack([model.module.get_parameter("weight").detach() for model in models])
        for model, head in zip(models, heads, strict=True):
            model.module.get_parameter("weight").data = head
        self._heads = STACKED[type(models[0].rule)](models[0].rule, [heads])
        return [*self._embeddings.parameters, heads]

    def through(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        """Compute embeddings, and a batched product with the heads."""
        *body, head = parameters
        h, back = self._embeddings.through(body, x)
        return h @ head.mT, lambda received: [*back(received @ head), received.mT @ h]

    def local_gradients(
        self,
        gradient: ByEmbeddings,
        parameters: Sequence[Tensor],
        x: Tensor,
        received: Sequence[Tensor],
        operations: Sequence[Operation[Any]],
    ) -> Sequence[Tensor]:
        """Step the heads, and return the gradients of the embedding models at the new heads."""
        *body, head = parameters
        places = [operation.work.place for operation in operations]
        h, back = self._embeddings.through(body, x)
        by_logits = checked(gradient(h @ head.mT, *received), operations, LOCAL)
        self._heads.step(places, [by_logits.mT @ h])
        (head,) = self._of(places, self.parameters[-1:])
        return back(checked(gradient(h @ head.mT, *received), operations, LOCAL) @ head)

    def move(self, places: Sequence[int], gradients: Sequence[Tensor]) -> None:
        """Step the embedding models, and the heads unless they have stepped."""
        count = len(self._embeddings.parameters)
        super().move(places, gradients[:count])
        if gradients[count:]:
            self._heads.step(places, gradients[count:])

    def state(self) -> dict[str, Tensor]:
        """Return the state of all parameters, and the memory of the heads' optimiser."""
        return super().state() | named("heads", self._heads.state())

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        super().load(state)
        self._heads.load(under("heads", state))


def stack_whole(setting: Setting, learners: Learners[Any, WholeClient]) -> list[str]:
    """Compute clients with whole models of one architecture together; describe the other clients, with reasons."""
    alone = stack_split_learners(setting, learners, table=False)
    for stack in dict.fromkeys(learner.stack for learner in learners.clients.values()):
        if isinstance(stack, Stack):
            WholeStack(stack)
    return alone
