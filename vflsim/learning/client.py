"""A client's side of the learning plane: its features, its model, its optimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vflsim.errors import NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.batches import Split as Split
from vflsim.learning.batching.work import Embedding, Rows, Stepping
from vflsim.learning.cost import flops_of
from vflsim.learning.operations import Handle, Operation
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.states import State, load_module, load_optimizer, module_state, named, optimizer_state, under
from vflsim.privacy.mechanisms import Mechanism
from vflsim.privacy.releases import Releases
from vflsim.privacy.releases import Rows as Released

if TYPE_CHECKING:
    from vflsim.learning.batching.stack import Stack


_Release: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class ClientParts:
    """What a client is made of: all that one process needs to play it.

    ``features`` maps a split to a tensor (rows, *feature_shape); ``build`` makes the model with its initial weights;
    ``mechanism`` is what its embeddings go through before anybody else sees them, with noise drawn from ``seed``.
    """

    party: int
    features: Mapping[Split, Tensor]
    build: Callable[[], nn.Module]
    optimizer: Optimizer
    embedding: int
    batch: int
    mechanism: Mechanism | None = None
    seed: int = 0


class ClientLearner:
    """Makes a client's operations. Each reads this client's own state and the payloads received, nothing else.

    Invariants: the model is built when first needed, from its own seed; the graph of the last embedding is kept until
    the model steps, so that a step costs one forward pass and uses the very parameters that were uploaded. With a
    mechanism every embedding is bounded, and those of training rows leave with noise; gradients go through the bound,
    and the noise is a constant to them. Evaluation, which is not part of the protocol, goes without noise.
    """

    def __init__(self, parts: ClientParts) -> None:
        self.parts = parts
        self.party, self.width = parts.party, parts.embedding
        self.dtype = parts.features["train"].dtype
        self.releases = (
            None
            if parts.mechanism is None
            else Releases(parts.mechanism, parts.seed, parts.party, len(parts.features["train"]))
        )
        self.stack: Stack | None = None
        """The clients that it is computed together with, if any, and where it stands among them."""
        self.place = 0
        self._graph: tuple[Batch, Tensor] | None = None
        self._flops: dict[tuple[str, int], float] = {}

    @cached_property
    def model(self) -> nn.Module:
        """The client's model θ_m."""
        return self.parts.build()

    @cached_property
    def _optimizer(self) -> torch.optim.Optimizer:
        return self.parts.optimizer.build(self.model.parameters())

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """h_m = f_m(x_m; θ_m) for a training batch: a handle of shape (batch, embedding)."""
        result: Handle[Tensor] = Handle((len(batch), self.width), self.dtype)
        release = self._release("embed", batch.ids)

        def run() -> None:
            self.model.train()
            h = self._bounded(self._rows(batch))
            self._graph = batch, h
            result.set(release(h.detach()))

        return self._embedding("embed", run, result, batch, release)

    def answer(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """A fresh embedding of ``batch`` for the server's table, beside the training step under way."""
        result: Handle[Tensor] = Handle((len(batch), self.width), self.dtype)
        release = self._release("answer", batch.ids)

        def run() -> None:
            self.model.train()
            with torch.no_grad():
                result.set(release(self._bounded(self._rows(batch))))

        return self._embedding("answer", run, result, batch, release)

    def client_step(self, batch: Batch, gradient: Any) -> Operation[None]:
        """θ_m ← θ_m − η ∇θ_m h_m ∂ℓ/∂h_m (VAFL Eq. 2b, 4a). ``gradient`` is the message that carries ∂ℓ/∂h_m.

        Both factors are taken at the parameters of the upload. A protocol that embeds another batch before the
        gradient comes gets the gradient through a new forward pass at the present parameters.
        """
        received: Handle[Tensor] = gradient.value

        def run() -> None:
            self.model.train()
            if self._graph is not None and self._graph[0] == batch:
                h = self._graph[1]
            else:
                h = self._bounded(self._rows(batch))
            self._graph = None
            if not torch.isfinite(received.value).all():
                raise NonFiniteError(
                    "the gradient received is not finite", remedy="a smaller learning rate, or scaled features"
                )
            self._optimizer.zero_grad()
            h.backward(received.value)  # type: ignore[no-untyped-call]
            self._optimizer.step()

        return self._stepping(run, batch, received)

    def embed_split(self, split: Split, kind: str = "evaluate") -> Operation[Handle[Tensor]]:
        """The embeddings of every row of a split, in evaluation mode: a handle of shape (rows, embedding).

        ``kind`` is ``evaluate``, or what else a mechanism's noise has to protect (``first_fill``, of training rows).
        """
        features = self.parts.features[split]
        result: Handle[Tensor] = Handle((len(features), self.width), self.dtype)
        release = _as_it_is if kind == "evaluate" else self._release(kind, slice(None))

        def run() -> None:
            self.model.eval()
            with torch.no_grad():
                result.set(release(self._bounded(features)))

        operation = self._embedding(kind, run, result, split, release)
        operation.units, operation.waits_for_company = len(features) / self.parts.batch, kind == "evaluate"
        return operation

    def flops(self, kind: str, rows: int) -> float:
        """FLOPs of an operation on ``rows`` rows: the backward pass of a ``client_step``, else the forward pass."""
        key = kind, rows
        if key not in self._flops:
            shape = (rows, *self.parts.features["train"].shape[1:])
            forward, backward = flops_of(self.model, shape, self.dtype)
            self._flops[key] = backward if kind == "client_step" else forward
        return self._flops[key]

    # --- being interrupted ------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """What it has learnt and remembers, by name, but for what its stack does: the tensors themselves (``states``).

        Of the graph under way that is its batch.
        """
        state = {} if self.releases is None else named("releases", self.releases.state())
        if self.stack is not None:
            return state
        if "model" in vars(self):
            state |= named("model", module_state(self.model))
        if "_optimizer" in vars(self):
            state |= {"optimizer": torch.empty(0), **named("optimizer", optimizer_state(self._optimizer))}
        if self._graph is not None:
            batch = self._graph[0]
            state |= {"graph.batch": torch.tensor([batch.index, batch.origin]), "graph.ids": batch.tensor()}
        return state

    def load(self, state: State) -> None:
        """Be as when ``state`` was taken; a graph under way is made anew, from the same weights."""
        if self.releases is not None:
            self.releases.load(under("releases", state))
        if model := under("model", state):
            load_module(self.model, model)
        if "optimizer" in state:
            load_optimizer(self._optimizer, under("optimizer", state))
        if graph := under("graph", state):
            index, origin = graph["batch"].tolist()
            self._graph = self._graph_of(Batch(index, graph["ids"].clone().numpy(), origin))

    def _graph_of(self, batch: Batch) -> tuple[Batch, Tensor]:
        """As ``embed`` leaves it, but that buffers which training moves (batch norm's) stay where they are."""
        self.model.train()
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        h: Tensor = functional_call(self.model, buffers, (self._rows(batch),))
        return batch, h if self.releases is None else self.releases.mechanism.bounded(h)

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _rows(self, batch: Batch) -> Tensor:
        features = self.parts.features["train"]
        return features[batch.tensor(features.device)]

    def _bounded(self, features: Tensor) -> Tensor:
        """The model's embeddings, bounded where there is a mechanism."""
        h: Tensor = self.model(features)
        return h if self.releases is None else self.releases.mechanism.bounded(h)

    def _release(self, kind: str, rows: Released) -> _Release:
        """What turns bounded embeddings of ``rows`` into what is uploaded: noise is drawn in the order of asking."""
        return _as_it_is if self.releases is None else self.releases.begin(kind, rows)

    def _embedding(
        self,
        kind: str,
        run: Callable[[], None],
        result: Handle[Tensor],
        rows: Rows,
        release: Callable[[Tensor], Tensor],
    ) -> Operation[Handle[Tensor]]:
        operation = self._operation(kind, run, result, result.shape[0])
        operation.inputs, operation.promises = (), (result,)
        if self.stack is not None:
            operation.kernel = self.stack.kernel(kind, rows if isinstance(rows, str) else result.shape[0])
            operation.work = Embedding(self.place, rows, release)
        return operation

    def _stepping(self, run: Callable[[], None], batch: Batch, received: Handle[Tensor]) -> Operation[None]:
        operation = self._operation("client_step", run, None, len(batch))
        operation.counts, operation.inputs = "update", (received,)
        if self.stack is not None:
            operation.kernel = self.stack.kernel("client_step", len(batch))
            operation.work = Stepping(self.place, batch, received)
        return operation

    def _operation(self, kind: str, run: Callable[[], None], result: Any, rows: int) -> Operation[Any]:
        nbytes = result.nbytes if isinstance(result, Handle) else 0
        return Operation(kind, self.party, run, result, nbytes=nbytes, rows=rows, cost=self.flops)


def _as_it_is(h: Tensor) -> Tensor:
    return h
