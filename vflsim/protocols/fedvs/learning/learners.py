"""The learners of a coded run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.finite import set_loss
from vflsim.learning.learners.server import ServerLearner, ServerParts
from vflsim.learning.learners.staleness import StepFacts
from vflsim.protocols.fedvs.learning.client import CodedClientLearner
from vflsim.protocols.fedvs.learning.plan import CodingPlan, SegmentedBatch, flops
from vflsim.protocols.fedvs.learning.shares import CodedSum, HeldData, HeldModel, ModelSecret
from vflsim.protocols.fedvs.learning.stack import stack_coded
from vflsim.setting import Learners, Setting, client_parts, server_parts
from vflsim.vocabulary.on_demand import Tensor, torch


class CodedServerLearner(ServerLearner):
    """Makes the operations of a coded run's server, which gets coded embeddings, never one client's own."""

    def __init__(self, parts: ServerParts, plan: CodingPlan) -> None:
        super().__init__(parts)
        self.plan = plan

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
                sums = [each.long() if isinstance(each, Tensor) else each.evaluate(holders) for each in answers]
                values = torch.stack(sums)
                field = plan.quantiser.field
                total = field.signed(plan.code.decode(values, holders)).reshape(-1, plan.embedding)
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
    """Compute all clients together."""
    stack_coded(learners.clients, setting.data.joint, setting.data.columns)
    return []
