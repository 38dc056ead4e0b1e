"""Three tensors a message in the shape of VIMADMM (Alg. 1): clients fit targets of the server by steps of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import fsum
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from vflsim.protocol import (
    SERVER,
    Batch,
    CheckContext,
    Count,
    Embedding,
    Handle,
    Learners,
    Message,
    Node,
    NonNegativeNumber,
    Operation,
    PartyLearner,
    PositiveNumber,
    Protocol,
    Received,
    Scores,
    Setting,
    Split,
    Staleness,
    Traits,
    finite_loss,
)

SOLVER_STEPS = 10


class Supervision(Message):
    """A client's ``targets`` s − λ/ρ, (batch, outputs) of float32; its ``head`` W, (outputs, embedding); and the rows
    that are ``unsettled``, (batch,) of bool: their predictions differ from z."""

    kind: ClassVar[str] = "supervision"


class ThreeTensors(Protocol):
    """The server splits its prediction by ADMM; each client takes ``local_steps`` of least squares on its part."""

    kind: Literal["three_tensors"] = "three_tensors"
    local_steps: Count = 3
    rho: PositiveNumber = 1.0
    tolerance: NonNegativeNumber = 0.0
    traits: ClassVar[Traits] = Traits(waits_for_all=True, rounds_correspond=True)

    async def server(self, node: Node[Server]) -> None:
        for k in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            supervision = await node.compute(node.learner.server_step(embeddings))
            for client in node.clients:
                await node.send(client, Supervision(node.batch(k), tensors=supervision[client], round=k))

    async def client(self, node: Node[Client]) -> None:
        for k in node.rounds():
            await node.activated()
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            supervision = await node.recv("supervision", round=k)
            for _ in range(self.local_steps):
                await node.compute(node.learner.local_step(batch, supervision))

    # --- what it needs ----------------------------------------------------------------------------------------------

    def check(self, context: CheckContext) -> None:
        super().check(context)
        if context.aggregate != "sum":
            raise ValueError(f"the server sums its heads' outputs, and has no {context.aggregate}; set aggregate: sum")
        if context.setting is not None and context.setting.server_model.kind != "linear":
            raise ValueError(f"its heads are linear, not {context.server.kind}; set models.server: linear")

    def learners(self, setting: Setting, seed: int) -> Learners[Server, Client]:
        clients = {client: Client(self, setting, client, seed) for client in setting.clients}
        return Learners(Server(self, setting, SERVER, seed), clients)

    def describe(self, setting: Setting) -> str:
        return f"{self.local_steps} local steps a round at every client"


class Client(PartyLearner):
    """Fits h W to the targets: min ρ/2 ‖s − λ/ρ − h W‖² over unsettled rows, which is Eq. 10 in scaled form."""

    def __init__(self, protocol: ThreeTensors, setting: Setting, party: int, seed: int) -> None:
        super().__init__(setting.data.parts(party, setting.training, seed, setting.mechanism))
        net, shape = setting.models[party - 1], setting.data.shapes[party - 1]
        self.rho, self.width = protocol.rho, net.embedding
        self.embedding = self.add_model("embedding", lambda: net.build(shape), setting.training.client_optimizer)

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        h, release = self.promise(len(batch), self.width), self.release("embed", batch)
        return self.operation(
            "embed", lambda: h.set(release(self.h(self.x(batch)))), h, begin=release.begin, commit=release.commit,
            rows=len(batch), cost=partial(self.embedding.forward_flops, len(batch)),
        )  # fmt: skip

    def local_step(self, batch: Batch, supervision: Message) -> Operation[None]:
        names = ("targets", "head", "unsettled")
        received = [supervision[name] for name in names]

        def run() -> None:
            targets, head, unsettled = (handle.value for handle in received)
            gap = targets.to(self.dtype) - self.h(self.x(batch)) @ head.T
            self.descend(self.rho / 2 * (unsettled * gap.square().sum(1)).mean(), self.embedding)

        cost = partial(self.embedding.training_flops, len(batch))
        return self.operation("local_step", run, None, inputs=received, rows=len(batch), cost=cost, counts="update")

    def embed_split(self, split: Split) -> Operation[Handle[Tensor]]:
        x = self.features(split)
        h, cost = self.promise(len(x), self.width), partial(self.embedding.forward_flops, len(x))
        return self.operation("evaluate", lambda: h.set(self.h(x)), h, rows=len(x), cost=cost)

    def h(self, x: Tensor) -> Tensor:
        return self.bounded(self.embedding(x))


class Server(PartyLearner):
    """Holds labels, a linear head W for every client, and the dual variable λ of every training row."""

    def __init__(self, protocol: ThreeTensors, setting: Setting, party: int, seed: int) -> None:
        super().__init__(setting.data.parts(party, setting.training, seed))
        self.protocol, self.outputs = protocol, setting.data.outputs
        self.staleness = Staleness(setting.clients, setting.data.rows)
        self.heads = {
            client: self.add_model(
                f"head-{client}", partial(nn.Linear, width, self.outputs, bias=False),
                setting.training.server_optimizer, inputs=(width,),
            )
            for client, width in zip(setting.clients, setting.widths, strict=True)
        }  # fmt: skip
        self.kept["duals"] = torch.zeros(setting.data.rows, self.outputs, dtype=self.dtype, device=setting.device)

    def server_step(self, embeddings: Sequence[Received]) -> Operation[dict[int, dict[str, Handle[Tensor]]]]:
        """Update z (Eq. 6), λ (Eq. 7) and all W (Eq. 8, one step), and compute the clients' targets (Eq. 9)."""
        batch, rho, loss = embeddings[0].batch, self.protocol.rho, Handle[float]()
        handles = in_client_order(embeddings)
        result = {
            client: {
                "targets": self.promise(len(batch), self.outputs, dtype=torch.float32),
                "head": self.promise(self.outputs, handle.shape[1]),
                "unsettled": self.promise(len(batch), dtype=torch.bool),
            }
            for client, handle in handles.items()
        }

        def run() -> None:
            h = {client: handle.value for client, handle in handles.items()}
            rows = batch.tensor(self.held.device)
            with torch.no_grad():
                total = self.predicted(h)
            loss.set(finite_loss(self.loss(total, batch)))
            z = self.nearest(total, self.kept["duals"][rows], batch)
            duals = self.kept["duals"][rows] + rho * (total - z)
            self.kept["duals"][rows] = duals
            gap = self.predicted(h) - z
            lagrangian = ((duals * gap).sum(1) + rho / 2 * gap.square().sum(1)).mean()
            self.descend(lagrangian, *self.heads.values())
            with torch.no_grad():
                outputs = {client: self.heads[client](h[client]) for client in h}
            gap = sum(outputs.values()) - z
            for client, sent in result.items():
                sent["targets"].set((outputs[client] - gap - duals / rho).float())
                sent["head"].set(self.heads[client].module.get_parameter("weight").detach().clone())
                sent["unsettled"].set(gap.norm(dim=1) > self.protocol.tolerance)

        return self.operation(
            "server_step", run, result, inputs=handles.values(), rows=len(batch), counts="round",
            promises=[loss, *(handle for sent in result.values() for handle in sent.values())],
            cost=lambda: fsum(head.training_flops(len(batch)) for head in self.heads.values()),
            commit=lambda: self.staleness.complete([(batch, list(handles))], loss),
        )  # fmt: skip

    def nearest(self, total: Tensor, duals: Tensor, batch: Batch) -> Tensor:
        """Return z ≈ argmin ℓ(z; y) − λᵀz + ρ/2 ‖total − z‖², by gradient steps of 1/(2 + ρ)."""
        z, rho = total.clone(), self.protocol.rho
        for _ in range(SOLVER_STEPS):
            z.requires_grad_()
            (slope,) = torch.autograd.grad(len(batch) * self.loss(z, batch), z)
            z = z.detach() - (slope - duals + rho * (z.detach() - total)) / (2 + rho)
        return z

    def evaluate(self, split: Split, answers: Sequence[Received]) -> Operation[Handle[Scores]]:
        handles, result = in_client_order(answers), Handle[Scores]()

        def run() -> None:
            result.set(self.scores(self.predicted({client: handle.value for client, handle in handles.items()}), split))

        rows = len(self.labels(split))
        return self.operation(
            "evaluate", run, result, inputs=handles.values(), rows=rows,
            cost=lambda: fsum(head.forward_flops(rows) for head in self.heads.values()),
        )  # fmt: skip

    def predicted(self, h: dict[int, Tensor]) -> Tensor:
        return torch.stack([self.heads[client](h[client]) for client in h]).sum(0)


def in_client_order(messages: Sequence[Received]) -> dict[int, Handle[Tensor]]:
    return {message.sender: message.value for message in sorted(messages, key=lambda each: each.sender)}
