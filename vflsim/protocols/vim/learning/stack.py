"""Batched clients with whole models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vflsim.learning.batching.stack import Backward, Stack, checked
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.finite import LOCAL
from vflsim.learning.learners.inputs import ByEmbeddings
from vflsim.learning.stacked_optimizers import STACKED
from vflsim.learning.states import named, under
from vflsim.protocols.vim.learning.whole import WholeClient
from vflsim.setting import Learners, Setting, stack_split_learners


class WholeStack(Stack):
    """S clients with logits o = f(x; θ_k) W_k; the last of the ``parameters`` are the heads, (S, d_c, d_f).

    θ_k of all clients are those of a stack of ``embeddings``, whose optimiser steps them. The heads have their own.
    """

    def __init__(self, embeddings: Stack) -> None:
        self._embeddings = embeddings
        super().__init__(embeddings.learners, embeddings.features, joint=False, joint_evaluation=False)
        self.optimizer = embeddings.optimizer

    def _side_by_side(self) -> list[Tensor]:
        models = [learner.head for learner in self._embeddings.learners if isinstance(learner, WholeClient)]
        heads = torch.stack([model.module.get_parameter("weight").detach() for model in models])
        for model, head in zip(models, heads, strict=True):
            model.module.get_parameter("weight").data = head
        self._heads = STACKED[type(models[0].rule)](models[0].rule, [heads])
        return [*self._embeddings.parameters, heads]

    def through(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        """Compute embeddings, and a batched product with the heads."""
        *body, head = parameters
        h, back = self._embeddings.through(body, x)
        return h @ head.mT, lambda received: [*back(received @ head), received.mT @ h]

    def local_gradients(
        self,
        gradient: ByEmbeddings,
        parameters: Sequence[Tensor],
        x: Tensor,
        received: Sequence[Tensor],
        operations: Sequence[Operation[Any]],
    ) -> Sequence[Tensor]:
        """Step the heads, and return the gradients of the embedding models at the new heads."""
        *body, head = parameters
        places = [operation.work.place for operation in operations]
        h, back = self._embeddings.through(body, x)
        by_logits = checked(gradient(h @ head.mT, *received), operations, LOCAL)
        self._heads.step(places, [by_logits.mT @ h])
        (head,) = self._of(places, self.parameters[-1:])
        return back(checked(gradient(h @ head.mT, *received), operations, LOCAL) @ head)

    def move(self, places: Sequence[int], gradients: Sequence[Tensor]) -> None:
        """Step the embedding models, and the heads unless they have stepped."""
        count = len(self._embeddings.parameters)
        super().move(places, gradients[:count])
        if gradients[count:]:
            self._heads.step(places, gradients[count:])

    def state(self) -> dict[str, Tensor]:
        """Return the state of all parameters, and the memory of the heads' optimiser."""
        return super().state() | named("heads", self._heads.state())

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        super().load(state)
        self._heads.load(under("heads", state))


def stack_whole(setting: Setting, learners: Learners[Any, WholeClient]) -> list[str]:
    """Compute clients with whole models of one architecture together; describe the other clients, with reasons."""
    alone = stack_split_learners(setting, learners, table=False)
    for stack in dict.fromkeys(learner.stack for learner in learners.clients.values()):
        if isinstance(stack, Stack):
            WholeStack(stack)
    return alone
