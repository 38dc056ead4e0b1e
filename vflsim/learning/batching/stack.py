"""Clients of one architecture, their parameters side by side: what is alike among their operations runs as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from vflsim.errors import NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.batching.features import StackedFeatures
from vflsim.learning.batching.joint import Joint
from vflsim.learning.batching.updates import STACKED
from vflsim.learning.batching.work import Embedding, Rows, Stepping
from vflsim.learning.client import ClientLearner
from vflsim.learning.operations import Operation


@dataclass(frozen=True, slots=True, eq=False)
class StackKernel:
    """One thing that the clients of a stack do together, for so many rows each."""

    run: Callable[[Sequence[Operation[Any]]], None]


class Stack(ABC):
    """S clients of one architecture; client ``place`` is ``learners[place]``.

    ``parameters`` are (S, …) each, and the models of the learners look into them: narrower clients see a part, and the
    rest stays zero. With ``joint``, only sums of embeddings are needed in training, and with ``joint_evaluation``, in
    evaluation; nothing is then computed client by client.

    Invariants: a client's parameters move by its own steps only; who computes together with whom changes results within
    rounding only, and follows from the operations given.
    """

    def __init__(
        self, learners: Sequence[ClientLearner], features: StackedFeatures, joint: bool, joint_evaluation: bool
    ) -> None:
        self.learners, self.features = learners, features
        self.parameters = self._side_by_side()
        parts = learners[0].parts
        self.optimizer = STACKED[type(parts.optimizer)](parts.optimizer, self.parameters)
        self.unsettled: WeakSet[Joint] = WeakSet()
        self._mechanism, self._joint, self._joint_evaluation = parts.mechanism, joint, joint_evaluation
        self._kernels: dict[tuple[str, int], StackKernel] = {}
        for place, learner in enumerate(learners):
            learner.stack, learner.place = self, place

    def kernel(self, kind: str, rows: int) -> StackKernel:
        """What runs the clients' operations of a kind, of so many rows, together."""
        kernel = self._kernels.get((kind, rows))
        if kernel is None:
            run = self._step if kind == "client_step" else self._embed_jointly if self._sums(kind) else self._embed
            kernel = self._kernels[kind, rows] = StackKernel(run)
        return kernel

    @abstractmethod
    def _side_by_side(self) -> list[Tensor]:
        """The parameters of all clients, (S, …) each; their models' become views of these."""

    @abstractmethod
    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """(G, rows, features) → (G, rows, width) with the parameters (G, …) of the same clients; differentiable."""

    def gradients(self, parameters: Sequence[Tensor], x: Tensor, received: Tensor) -> Sequence[Tensor]:
        """∇θ_m of each client, like ``parameters``, for its rows ``x`` and ∂ℓ/∂h_m, (G, rows, width)."""
        leaves = [parameter.detach().requires_grad_() for parameter in parameters]
        return torch.autograd.grad(self._bounded(self.forward(leaves, x)), leaves, received)

    def total(self, places: Sequence[int], rows: Rows, parameters: Sequence[Tensor]) -> Tensor:
        """Σ h_m of the clients at ``places`` for the same rows, (rows, width)."""
        return self.embeddings(places, [rows] * len(places), parameters).sum(0)

    @torch.no_grad()
    def embeddings(self, places: Sequence[int], rows: Sequence[Rows], parameters: Sequence[Tensor]) -> Tensor:
        """h_m of the clients at ``places``, each for its own rows (of one length): (G, rows, width)."""
        return self._bounded(self.forward(self._of(places, parameters), self._x(places, rows)))

    # --- kernels ----------------------------------------------------------------------------------------------------

    def _sums(self, kind: str) -> bool:
        return {"embed": self._joint, "evaluate": self._joint_evaluation}.get(kind, False)

    def _embed(self, operations: Sequence[Operation[Any]]) -> None:
        work: list[Embedding] = [operation.work for operation in operations]
        h = self.embeddings([each.place for each in work], [each.rows for each in work], self.parameters)
        for n, (operation, each) in enumerate(zip(operations, work, strict=True)):
            operation.result.set(each.release(h[n]))

    def _embed_jointly(self, operations: Sequence[Operation[Any]]) -> None:
        together: list[list[Operation[Any]]] = []
        for operation in operations:
            if not together or together[-1][0].work.rows != operation.work.rows:
                together.append([])
            together[-1].append(operation)
        for alike in together:
            joint = Joint(self, tuple(operation.work.place for operation in alike), alike[0].work.rows)
            for operation in alike:
                joint.give(operation.result, operation.work.place)

    def _step(self, operations: Sequence[Operation[Any]]) -> None:
        work: list[Stepping] = [operation.work for operation in operations]
        places, batches = [each.place for each in work], [each.batch for each in work]
        received = [each.received.value for each in work]
        _check_finite(received, operations)
        if self._joint and len(places) == len(self.learners) and _all_one(received) and _all_equal(batches):
            gradients = self.joint_gradients(batches[0], received[0])
        else:
            x, parameters = self._x(places, batches), self._of(places, self.parameters)
            gradients = self.gradients(parameters, x, torch.stack(received))
        for joint in self.unsettled:
            joint.settle()
        self.unsettled.clear()
        self.optimizer.step(places, gradients)

    def joint_gradients(self, batch: Batch, received: Tensor) -> Sequence[Tensor]:
        """∇θ_m of every client for the same batch and the same ∂ℓ/∂h_m, (rows, width)."""
        everybody = range(len(self.learners))
        x = self._x(everybody, [batch] * len(everybody))
        return self.gradients(self.parameters, x, received.expand(len(everybody), *received.shape))

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _x(self, places: Sequence[int], rows: Sequence[Rows]) -> Tensor:
        """The features of some clients, each for its own rows: (G, rows, features)."""
        first = rows[0]
        if _all_equal(rows):
            every = self.features.same_rows(first)
            x = every.view(len(every), len(self.learners), -1).transpose(0, 1)
            return x if len(places) == len(self.learners) else x[list(places)]
        batches = [each for each in rows if isinstance(each, Batch)]
        assert len(batches) == len(rows), "whole splits are evaluated one at a time"
        return self.features.rows_of(places, batches)

    def _of(self, places: Sequence[int], parameters: Sequence[Tensor]) -> Sequence[Tensor]:
        if len(places) == len(self.learners):
            return parameters
        if len(places) == 1:
            return [parameter[places[0] : places[0] + 1] for parameter in parameters]
        index = torch.tensor(places, device=parameters[0].device)
        return [parameter.index_select(0, index) for parameter in parameters]

    def _bounded(self, h: Tensor) -> Tensor:
        """Bounded row by row, where there is a mechanism."""
        if self._mechanism is None:
            return h
        return self._mechanism.bounded(h.reshape(-1, h.shape[-1])).view(h.shape)


def _all_equal(rows: Sequence[Rows]) -> bool:
    first = rows[0]
    return all(each is first or each == first for each in rows)


def _all_one(tensors: Sequence[Tensor]) -> bool:
    return all(tensor is tensors[0] for tensor in tensors)


def _check_finite(received: Sequence[Tensor], operations: Sequence[Operation[Any]]) -> None:
    tensors = list(received[:1] if _all_one(received) else received)
    if bool(torch.isfinite(tensors[0] if len(tensors) == 1 else torch.stack(tensors)).all()):
        return
    which = next(n for n, tensor in enumerate(tensors) if not bool(torch.isfinite(tensor).all()))
    remedy = "a smaller learning rate, or scaled features"
    raise NonFiniteError("the gradient received is not finite", operations[which].where, remedy=remedy)
