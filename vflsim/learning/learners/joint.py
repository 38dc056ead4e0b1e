"""Embeddings of several clients for the same rows, often needed only as a sum; and what computes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from weakref import WeakSet

import torch
from torch import Tensor

from vflsim.learning.batches import Split
from vflsim.learning.execution.operations import Handle, Kernel
from vflsim.learning.learners.work import Rows


class PartyStack(ABC):
    """Parties whose identical operations run as one batched call: what their learners know of it."""

    @abstractmethod
    def kernel(self, kind: str, rows: int | Split, alike: Hashable = None) -> Kernel:
        """Return the kernel for operations of a kind, on so many rows or on a whole split, that agree in ``alike``."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return what the parties have learnt and remember, by name: the tensors themselves."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""


class ClientStack(PartyStack):
    """Clients of split training in a stack: what a ``Joint`` knows of them.

    ``parameters`` have the shape (S, …), of S clients side by side. ``unsettled`` are the joints that need copies of
    them before they move.
    """

    parameters: list[Tensor]
    unsettled: WeakSet[Joint]

    @abstractmethod
    def total(self, places: Sequence[int], rows: Rows, parameters: Sequence[Tensor]) -> Tensor:
        """Σ h_m of the clients at ``places`` for the same rows, (rows, width)."""

    @abstractmethod
    def embeddings(self, places: Sequence[int], rows: Sequence[Rows], parameters: Sequence[Tensor]) -> Tensor:
        """h_m of the clients at ``places``, each for its own rows (of one length): (G, rows, width)."""


class Joint:
    """h_m of the clients at ``places`` of a stack for the same ``rows``: each by itself, or only their sum.

    Nothing is computed before it is needed. Invariant: the embeddings are those of the weights at the time of making;
    the stack calls ``settle`` before its weights move.
    """

    def __init__(self, stack: ClientStack, places: tuple[int, ...], rows: Rows) -> None:
        self.stack, self.places, self.rows = stack, places, rows
        self.weights: list[Tensor] | None = None
        """The weights to embed with, if the stack's have moved since."""
        self._each: Tensor | None = None
        stack.unsettled.add(self)

    def of(self, place: int) -> Tensor:
        """Return the embedding of one of the clients, (rows, width)."""
        if self._each is None:
            self._each = self.stack.embeddings(self.places, [self.rows] * len(self.places), self._parameters())
        return self._each[self.places.index(place)]

    def total(self, places: Sequence[int]) -> Tensor:
        """Return Σ h_m over ``places``, some of its own: (rows, width)."""
        return self.stack.total(places, self.rows, self._parameters())

    def settle(self) -> None:
        """Keep a copy of the weights: they are about to move."""
        self.weights = [parameter.clone() for parameter in self.stack.parameters]

    def _parameters(self) -> Sequence[Tensor]:
        return self.stack.parameters if self.weights is None else self.weights


def total_of(handles: Sequence[Handle[Tensor]]) -> Tensor:
    """Sum the values, given in client order: first those outside a joint, then joint by joint."""
    joints: dict[Joint, list[int]] = {}
    alone: list[Tensor] = []
    for handle in handles:
        if handle.joint is None:
            alone.append(handle.value)
            continue
        joint, place = handle.joint
        joints.setdefault(joint, []).append(place)
    total = torch.stack(alone).sum(0) if alone else None
    for joint, places in joints.items():
        total = joint.total(places) if total is None else total + joint.total(places)
    assert total is not None, "there is at least one embedding"
    return total
