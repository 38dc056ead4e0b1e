"""Split training in plain PyTorch, written without the simulator: the oracle of the protocols' tests.

Networks are functions of lists of tensors, optimisers are the textbook's update rules, and one autograd graph runs from
the features to the loss. Only initial weights, features and the sample ids of the batches are taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tiny_worlds import learners
from torch import Tensor
from torch.nn import functional as F

from vflsim.learning.batches import BatchSequence
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import client_models

LEARNING = 50
"""From so many rounds on, the loss has fallen for certain."""
Weights = list[Tensor]
OWN = -1
"""The number here of the server's own embedding model."""


def linear(w: Weights, x: Tensor) -> Tensor:
    return x.flatten(1) @ w[0].T + (w[1] if len(w) > 1 else 0)


def polynomial(w: Weights, x: Tensor) -> Tensor:
    x = x.flatten(1)
    return sum(x**power @ w[2 * power - 2].T + w[2 * power - 1] for power in range(1, len(w) // 2 + 1))


def mlp(w: Weights, x: Tensor) -> Tensor:
    x = x.flatten(1)
    for layer in range(0, len(w) - 2, 2):
        x = torch.clamp(x @ w[layer].T + w[layer + 1], min=0)
    return x @ w[-2].T + w[-1]


def cnn(w: Weights, x: Tensor) -> Tensor:
    for layer in range(0, len(w) - 2, 2):
        x = torch.clamp(F.conv2d(x, w[layer], w[layer + 1], padding=w[layer].shape[-1] // 2), min=0)
        x = F.max_pool2d(x, (min(2, x.shape[2]), min(2, x.shape[3])))
    return x.flatten(1) @ w[-2].T + w[-1]


NETWORKS: dict[str, Callable[[Weights, Tensor], Tensor]] = {
    "linear": linear,
    "polynomial": polynomial,
    "mlp": mlp,
    "cnn": cnn,
}


SERVERS: dict[str, Callable[[Weights, Tensor], Tensor]] = {
    "linear": linear,
    "mlp": mlp,
    "logistic": lambda w, x: x + w[0],
}


def join(aggregate: str, hs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The aggregate of all embeddings, in client order."""
    if aggregate == "concat":
        return torch.cat(list(hs), 1)
    if aggregate == "max":
        best = hs[0]
        for h in hs[1:]:
            best = torch.where(h > best, h, best)  # a tie stays with the first
        return best
    total = sum(w * h for w, h in zip(weights, hs, strict=True))
    return total / {"sum": 1, "mean": len(hs), "weighted": sum(weights)}[aggregate]


class TextbookSgd:
    """v ← μ v + g + λ θ; θ ← θ − η v."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.lr, self.momentum, self.decay = said["lr"], said.get("momentum", 0), said.get("weight_decay", 0)
        self.velocity: list[Tensor] | None = None

    def step(self, weights: Weights, gradients: Sequence[Tensor]) -> None:
        moved = [g + self.decay * w for w, g in zip(weights, gradients, strict=True)]
        if self.velocity is not None:
            moved = [self.momentum * v + m for v, m in zip(self.velocity, moved, strict=True)]
        self.velocity = moved
        for w, v in zip(weights, moved, strict=True):
            w -= self.lr * v


class TextbookAdam:
    """Kingma and Ba, Alg. 1."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.lr, (self.b1, self.b2), self.eps = said["lr"], said.get("betas", (0.9, 0.999)), said.get("eps", 1e-8)
        self.steps, self.m, self.v = 0, [], []  # type: ignore[var-annotated]

    def step(self, weights: Weights, gradients: Sequence[Tensor]) -> None:
        self.steps += 1
        for j, (w, g) in enumerate(zip(weights, gradients, strict=True)):
            if self.steps == 1:
                self.m.append(torch.zeros_like(w))
                self.v.append(torch.zeros_like(w))
            self.m[j] = self.b1 * self.m[j] + (1 - self.b1) * g
            self.v[j] = self.b2 * self.v[j] + (1 - self.b2) * g * g
            m, v = self.m[j] / (1 - self.b1**self.steps), self.v[j] / (1 - self.b2**self.steps)
            w -= self.lr * m / (v.sqrt() + self.eps)


def textbook(said: dict[str, Any]) -> TextbookSgd | TextbookAdam:
    return TextbookSgd(said) if said["kind"] == "sgd" else TextbookAdam(said)


class Plain:
    """Server and clients of a scenario as lists of tensors, with the losses and steps of split training."""

    def __init__(self, raw: dict[str, Any], scenario: Scenario, name: str, seed: int, data: LoadedData) -> None:
        server, clients = learners(scenario, name, seed, data)
        self.clients = list(clients)
        modules = {0: server.model} | {m: learner.model for m, learner in clients.items()}
        own = server.embedding
        if own is not None:
            modules[OWN] = own.module
        self.holders = [*([] if own is None else [OWN]), *clients]
        """Whose embeddings are joined, in that order."""
        self.weights = {m: _copied(module) for m, module in modules.items()}
        prefix = {0: "server" if own is None else "server.top", OWN: "server.embedding"}
        self.names = {
            m: [f"{prefix.get(m, f'client-{m}')}.{name}" for name in module.state_dict()]
            for m, module in modules.items()
        }
        training = raw["training"]
        self.optimizers = {
            m: textbook(training["server_optimizer" if m <= 0 else "client_optimizer"]) for m in self.weights
        }
        models = client_models(scenario, name)
        self.networks = {m: NETWORKS[models[m - 1].kind] for m in self.clients}
        self.widths = {m: models[m - 1].embedding for m in self.clients}
        self.server = SERVERS[raw["models"]["server"]["kind"]]
        self.binary = data.task.name == "binary"
        self.aggregate = raw["models"]["aggregate"]
        self.x = {m: data.features[m - 1]["train"] for m in self.clients}
        self.test = {m: data.features[m - 1]["test"] for m in self.clients}
        self.y, self.y_test = data.labels["train"], data.labels["test"]
        if own is not None:
            self.networks[OWN] = NETWORKS[raw["models"]["active"]["kind"]]
            self.x[OWN], self.test[OWN] = data.active["train"], data.active["test"]
        shares = [self.x[m][0].numel() for m in self.holders]
        self.shares = shares if self.aggregate == "weighted" else [1] * len(shares)
        spec = scenario.training_of(name)
        own = spec.batches == "own"
        self.sequences = {m: BatchSequence(data.rows, spec, seed, m if own else -1) for m in self.clients}

    def ids(self, client: int, k: int) -> Tensor:
        return torch.tensor(self.sequences[client].batch(k).ids)

    def embed(self, m: int, ids: Tensor | slice, weights: Weights | None = None) -> Tensor:
        return self.networks[m](self.weights[m] if weights is None else weights, self.x[m][ids])

    def loss(self, hs: Sequence[Tensor], ids: Tensor) -> Tensor:
        return self._loss(hs, self.y[ids])

    def test_loss(self) -> float:
        with torch.no_grad():
            hs = [self.networks[m](self.weights[m], self.test[m]) for m in self.holders]
            return float(self._loss(hs, self.y_test))

    def _loss(self, hs: Sequence[Tensor], y: Tensor) -> Tensor:
        logits = self.server(self.weights[0], join(self.aggregate, hs, self.shares))
        if self.binary:  # -log σ(z) where y is 1, -log(1 - σ(z)) where it is 0
            return (torch.log1p(torch.exp(logits)) - y * logits).mean()
        return -F.log_softmax(logits, 1)[torch.arange(len(y)), y].mean()

    def step(self, party: int, gradients: Sequence[Tensor]) -> None:
        with torch.no_grad():
            self.optimizers[party].step(self.weights[party], gradients)

    def synchronous_step(self, ids: Tensor) -> float:
        """One step of everybody on one graph from the features to the loss."""
        loss = self.loss([self.embed(m, ids) for m in self.holders], ids)
        parties = [0, *self.holders]
        gradients = iter(torch.autograd.grad(loss, [w for party in parties for w in self.weights[party]]))
        for party in parties:
            self.step(party, [next(gradients) for _ in self.weights[party]])
        return float(loss.detach())

    def furthest(self, found: dict[str, Tensor]) -> float:
        """The largest absolute difference between these weights and a run's."""
        differences = [
            float((found[name] - w.detach()).abs().max())
            for party in self.weights
            for name, w in zip(self.names[party], self.weights[party], strict=True)
        ]
        assert len(differences) == len(found)
        return max(differences)


def _copied(model: torch.nn.Module) -> Weights:
    return [tensor.clone().requires_grad_() for tensor in model.state_dict().values()]
