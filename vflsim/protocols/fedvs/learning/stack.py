"""Batched clients of a coded run: their weights are rounded together, and step together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vflsim.learning.batches import Batch, Split
from vflsim.learning.batching.features import StackedFeatures
from vflsim.learning.batching.products import ProductStack
from vflsim.learning.execution.operations import Operation, placed
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.optimizers import Optimizer
from vflsim.protocols.fedvs.learning.client import CodedClientLearner, ShareWork
from vflsim.vocabulary.on_demand import Tensor, torch


class CodedStack(ProductStack):
    """S clients with equally many columns of X̂; the server decodes sums, so training has no joint embedding."""

    def _runner(self, kind: str) -> Callable[[Sequence[Operation[Any]]], None]:
        return self._share_models if kind == "share_model" else super()._runner(kind)

    def _share_models(self, operations: Sequence[Operation[Any]]) -> None:
        work: list[ShareWork] = [operation.work for operation in operations]
        learners = [self._coded(each.place) for each in work]
        some, degree = self._of([each.place for each in work], self.parameters), self._degree
        blocks = [weight.double() for weight in some[:degree]]
        if some[degree:]:
            blocks.append(torch.stack([bias.double() for bias in some[degree:]]).sum(0)[:, None])
        weights = torch.cat(blocks, 1)
        for learner, operation, matrix in zip(learners, operations, weights, strict=True):
            with placed(operation):
                learner.check_weights(matrix)
        uniforms = torch.stack([learner.uniforms(each.round) for learner, each in zip(learners, work, strict=True)])
        quantised = learners[0].plan.quantiser.weights(weights, uniforms)
        for learner, operation, each, matrix in zip(learners, operations, work, quantised, strict=True):
            learner.give_shares(operation.result, each.round, matrix)

    def gradients(self, places: Sequence[int], batches: Sequence[Batch], received: Tensor) -> Sequence[Tensor]:
        """Compute X̂'ᵀ ∂ℓ/∂h_m, split into the parts of powers and biases."""
        rows = [self._coded(place).data_secret.quantised[b.tensor()] for place, b in zip(places, batches, strict=True)]
        x = self._coded(0).plan.quantiser.data_values(torch.stack(rows)).to(received.dtype)
        whole = torch.bmm(x.transpose(1, 2), received)
        width = self.features.width
        products = [whole[:, n * width : (n + 1) * width] for n in range(self._degree)]
        return [*products, *[whole[:, -1]] * (len(self.parameters) - self._degree)]

    def _coded(self, place: int) -> CodedClientLearner:
        learner = self.learners[place]
        assert isinstance(learner, CodedClientLearner)
        return learner


def stack_coded(learners: Mapping[int, ClientLearner], joint: Mapping[Split, Tensor], columns: Sequence[slice]) -> None:
    """Stack the learners of a coded run, all of one kind of model, by their number of features and optimiser."""
    alike: dict[tuple[int, Optimizer], list[int]] = {}
    for client in learners:
        span = columns[client - 1]
        alike.setdefault((span.stop - span.start, learners[client].parts.optimizer), []).append(client)
    for clients in alike.values():
        features = StackedFeatures(joint, [columns[client - 1] for client in clients])
        CodedStack([learners[client] for client in clients], features, joint=False, joint_evaluation=True)
