"""The learners of a coded run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vflsim.learning.batches import Batch, Split
from vflsim.learning.batching.products import ProductStack
from vflsim.learning.execution.operations import Handle, Operation, placed, set_loss
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.inputs import StackedFeatures
from vflsim.learning.learners.server import ServerLearner, ServerParts
from vflsim.learning.learners.staleness import StepFacts
from vflsim.learning.optimizers import Optimizer
from vflsim.protocols.fedvs.client import CodedClientLearner, ShareWork
from vflsim.protocols.fedvs.plan import CodingPlan, SegmentedBatch, flops
from vflsim.protocols.fedvs.shares import CodedSum, HeldData, HeldModel, KeptShares, ModelSecret
from vflsim.setting import Learners, Setting, client_parts, server_parts
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
        every = zip([self._coded(place).data_secret.quantised for place in places], batches, strict=True)
        rows = torch.stack([quantised.index_select(0, batch.tensor()) for quantised, batch in every])
        x = self._coded(0).plan.quantiser.data_values(rows).to(received.dtype)
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


class CodedServerLearner(ServerLearner):
    """Makes the operations of a coded run's server, which gets coded embeddings, never one client's own."""

    def __init__(self, parts: ServerParts, plan: CodingPlan) -> None:
        super().__init__(parts)
        self.plan = plan
        self._kept = KeptShares()

    def decode(
        self, batch: SegmentedBatch, embeddings: Sequence[Any], sharers: Sequence[int]
    ) -> Operation[Handle[Tensor]]:
        """Decode H = (1/|S|) Σ_{n∈S} h_n of the batch's real rows, (rows, h), from R coded embeddings (Eq. 6, 7).

        The order of ``embeddings`` does not matter. Padded rows, which have no label, are left out. A sampled time of
        the server covers the whole step, decoding included; FLOPs are counted for each part.
        """
        plan, places = self.plan, len(batch.positions)
        result: Handle[Tensor] = Handle((len(batch), plan.embedding), self.parts.dtype)
        ordered = sorted(embeddings, key=lambda message: plan.places[message.sender])
        count = len(sharers)

        def run() -> None:
            answers = [message.value.value for message in ordered]
            if plan.arithmetic == "decoded":
                total = answers[0].decoded()
            else:
                holders = tuple(plan.places[message.sender] for message in ordered)
                known = isinstance(answers[0], CodedSum)  # else in a live run
                values = answers[0].all_of(holders, self._kept) if known else torch.stack(answers).long()
                total = plan.quantiser.field.signed(plan.code.decode(values, holders)).reshape(-1, plan.embedding)
            mean = plan.quantiser.mean(total, count)
            result.set(mean[torch.from_numpy(batch.real.copy())].to(self.parts.dtype))

        cost = flops(plan.decoding_products(places))
        return Operation(
            "decode",
            0,
            run,
            result,
            nbytes=result.nbytes,
            units=0.0,
            cost=lambda *_: cost,
            inputs=[message.value for message in ordered],
            promises=(result,),
        )

    def coded_step(
        self, batch: SegmentedBatch, decoded: Handle[Tensor], responders: Sequence[int], sharers: Sequence[int]
    ) -> Operation[Handle[Tensor]]:
        """Step θ_0 on the decoded mean; compute ∂ℓ/∂h_n = (1/|S|) ∂ℓ/∂H, the same for every client n of S.

        ``responders`` are the clients whose coded embeddings the step has used.
        """
        result: Handle[Tensor] = Handle(decoded.shape, decoded.dtype)
        loss: Handle[float] = Handle()
        count = len(sharers)

        def run() -> None:
            flat = self.top
            flat.train()
            leaf = decoded.value.clone().requires_grad_()
            value = self.parts.task.loss(flat(leaf), self.parts.labels["train"][batch.tensor()])
            set_loss(loss, value.detach())
            gradient, (received,) = flat.gradients(value, [leaf])
            flat.step(gradient)
            result.set(received / count)

        def commit() -> StepFacts:
            return self.staleness.complete([(batch, sharers)], loss, used=sorted(responders))

        return Operation(
            "server_step", 0, run, result, nbytes=result.nbytes, rows=len(batch), cost=self._cost, commit=commit,
            counts="round", inputs=(decoded,), promises=(loss, result),
        )  # fmt: skip


def coded_learners(setting: Setting, plan: CodingPlan, seed: int) -> Learners[CodedServerLearner, CodedClientLearner]:
    """Make the learners of a coded run, whose parties agree on ``plan``."""
    clients: dict[int, CodedClientLearner] = {}
    for client in setting.clients:
        model = setting.models[client - 1]
        assert model.powers is not None, "checked when the scenario was loaded"
        clients[client] = CodedClientLearner(client_parts(setting, client, seed), plan, model.powers, model.biased)
    server, lazy = CodedServerLearner(server_parts(setting, seed), plan), (HeldData, HeldModel, CodedSum, ModelSecret)
    return Learners(server, clients, _stack, lazy)


def _stack(setting: Setting, learners: Learners[Any, Any]) -> list[str]:
    stack_coded(learners.clients, setting.data.joint, setting.data.columns)
    return []
