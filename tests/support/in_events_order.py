"""Training by plain autograd in the order in which a run's computations ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from plain_training import Plain
from tiny_worlds import events
from torch import Tensor


def computations(outcome: Any) -> Iterator[tuple[int, str]]:
    """The (party, operation) of each computation of a run, in the order in which they ended."""
    frame = events(outcome)
    frame = frame[frame["kind"].str.startswith("compute.") & (frame["status"] == "done" if "status" in frame else True)]
    for _, row in frame.sort_values("end_s", kind="stable").iterrows():
        party = 0 if row["party"] == "server" else int(row["party"].split("-")[1])
        yield party, row["kind"].removeprefix("compute.")


def descend(plain: Plain, party: int, output: Tensor, gradient: Tensor) -> None:
    """θ ← θ − η ∇θ (output · gradient)."""
    plain.step(party, torch.autograd.grad((output * gradient).sum(), plain.weights[party]))


def gradients_of(plain: Plain, hs: Sequence[Tensor], ids: Tensor) -> tuple[float, list[Tensor], list[Tensor]]:
    """The loss at these embeddings, ∂ℓ/∂h of each, and ∂ℓ/∂θ_0."""
    leaves = [h.detach().requires_grad_() for h in hs]
    loss = plain.loss(leaves, ids)
    found = torch.autograd.grad(loss, [*leaves, *plain.weights[0]])
    return float(loss.detach()), list(found[: len(leaves)]), list(found[len(leaves) :])
