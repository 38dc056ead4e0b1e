"""The algorithms of the VIM paper in plain autograd, with one tensor W_k for each client: the oracle of their tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from plain_training import Plain, textbook
from tiny_worlds import data_of, raw
from torch import Tensor
from torch.nn import functional as F

from vflsim.scenario import load
from vflsim.scenario.models import Scenario

MOMENTUM = {"kind": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.005}
PLAIN = {"kind": "sgd", "lr": 0.1, "weight_decay": 0.005}
MLP = {"kind": "mlp", "hidden": [7], "embedding": 5}


def heads(protocol: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A scenario of three clients with linear heads, as a mapping."""
    changes = {
        "models__client": MLP,
        "models__aggregate": "concat",
        "models__server": {"kind": "linear", "bias": False},
        "training__client_optimizer": MOMENTUM,
        "training__server_optimizer": PLAIN,
        "partition": {"clients": 3, "by": "image_rows"},
        **changes,
    }
    return raw({"it": protocol}, **changes)


class Heads(Plain):
    """Embedding models by client, and heads W_k (d_f, d_c) by client, each with an optimiser of its own."""

    def __init__(self, said: dict[str, Any], scenario: Scenario | None = None, seed: int = 0) -> None:
        scenario = scenario or load(said)
        reference = load({**said, "protocols": {"it": {"kind": "synchronous"}}})  # whose initial weights these are
        super().__init__(said, reference, "it", seed, data_of(scenario))
        whole = self.weights.pop(0)[0].detach().T.clone()  # (Σ d_f, d_c)
        parts = torch.split(whole, [self.widths[m] for m in self.clients])
        self.heads = {m: part.clone().requires_grad_() for m, part in zip(self.clients, parts, strict=True)}
        self.head_rules = {m: textbook(said["training"]["server_optimizer"]) for m in self.clients}

    def logits(self, hs: Sequence[Tensor]) -> Tensor:
        return sum(h @ self.heads[m] for m, h in zip(self.clients, hs, strict=True))

    def cross_entropy(self, logits: Tensor, ids: Tensor) -> Tensor:
        return F.cross_entropy(logits, self.y[ids])

    def step_heads(self, gradients: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for m, gradient in zip(self.clients, gradients, strict=True):
                self.head_rules[m].step([self.heads[m]], [gradient])

    def heads_together(self) -> Tensor:
        """All W_k as the weight of one linear layer, (d_c, Σ d_f)."""
        return torch.cat([self.heads[m].detach() for m in self.clients]).T

    def apart(self, found: dict[str, Tensor]) -> float:
        """The largest difference between these weights and those of a run whose server has the heads."""
        server = {"server.weight": found.pop("server.weight")}
        return max(self.furthest(found), float((server["server.weight"] - self.heads_together()).abs().max()))


def newton(y: Tensor, a: Tensor, duals: Tensor, rho: float) -> Tensor:
    """Eq. 6 with autograd's gradient and the whole Hessian of every row."""
    z = a.clone()
    for _ in range(30):
        at = z.clone().requires_grad_()
        value = F.cross_entropy(at, y, reduction="sum") - (duals * at).sum() + rho / 2 * (a - at).square().sum()
        (gradient,) = torch.autograd.grad(value, at)
        p = torch.softmax(z, 1)
        hessian = torch.diag_embed(p + rho) - p[:, :, None] * p[:, None, :]
        z = z - torch.linalg.solve(hessian, gradient)
    return z


def trained(plain: Heads, rounds: int, one: Callable[[Heads, Tensor], float]) -> list[float]:
    """Do so many rounds; return their losses."""
    return [one(plain, plain.ids(1, t)) for t in range(rounds)]
