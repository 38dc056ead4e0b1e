"""LASER-VFL: late and missing embeddings are masked, in training and in inference (Valdeira et al., ICLR 2025)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from math import comb
from statistics import fmean
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Operation, set_loss
from vflsim.learning.learners.inputs import Received, in_client_order
from vflsim.learning.learners.party_model import descend
from vflsim.learning.learners.server import OwnEmbedding, ServerLearner
from vflsim.learning.models.build import seeded
from vflsim.protocols.answering import Scores, of_parties
from vflsim.protocols.base import Traits, replace
from vflsim.protocols.synchronous import InTime
from vflsim.setting import Learners, Setting, server_parts, split_clients
from vflsim.streams import SERVER, generator, torch_seed
from vflsim.vocabulary.on_demand import Tensor, torch


class SubsetServer(ServerLearner):
    """Steps on the losses of all heads that have their own party's embedding, on sets drawn for each size.

    For the observed set O of a row and every k in O, the loss has Σ_j C(|O| − 1, j − 1)/j · ℓ(g_k(mean of h_S)). S is
    drawn uniformly among the subsets of O of size j with k in it: once a batch for each k and j (Valdeira et al. 2025).
    The mean over the draws is the sum, over all subsets S of O, of the mean loss of the heads in S. Rows that nobody
    has count for nothing.
    """

    def __init__(self, setting: Setting, seed: int) -> None:
        from vflsim.learning.models.layers import Heads

        parts = server_parts(setting, seed)
        self._seed, self._parties = seed, len(parts.clients) + (parts.active is not None)
        draft = partial(
            Heads, partial(setting.server_model.build, parts.widths[0], setting.data.outputs), self._parties
        )
        weights = torch_seed(seed, SERVER, "weights")
        build = partial(seeded, draft, weights, setting.dtype, setting.device)
        super().__init__(replace(parts, build=build, draft=draft))

    def predict(self, embeddings: Sequence[Tensor | None]) -> Tensor:
        """Return the mean prediction of the heads of the parties whose embeddings are there: (rows, outputs).

        They are in party order, (rows, width) each, or None; each head predicts from the mean of those that are there.
        """
        here = [place for place, h in enumerate(embeddings) if h is not None]
        mean = torch.stack([h for h in embeddings if h is not None]).mean(0)
        return torch.stack([self._head(place, mean) for place in here]).mean(0)

    def evaluate(self, split: Split, answers: Sequence[Received]) -> Operation[Handle[Scores]]:
        """Return the loss and the metrics of each head on the rows that its party has, and their means over the heads.

        ``answers`` are messages of (rows of the split, embedding). A head predicts from the mean over all parties that
        have the row.
        """
        operation: Operation[Handle[Scores]] = super().evaluate(split, answers)
        ordered, result = in_client_order(answers), operation.result

        def run() -> None:
            self.model.eval()
            with torch.no_grad():
                embeddings = [] if self.embedding is None else [self.own_embedding(split)]
                h = torch.stack([*embeddings, *(message.value.value for message in ordered)], 1)
                here = None if self.parts.present is None else self.parts.present[split].bool()
                means = h.mean(1) if here is None else _mean_of(h, here.to(h))
                scores = {}
                for party, place in self._place.items():
                    rows = slice(None) if here is None else here[:, place]
                    target = self.labels(split)[rows]
                    scores[party] = self.parts.task.scores(self._head(place, means[rows]), target)
                names = next(iter(scores.values()))
                result.set({name: fmean(each[name] for each in scores.values()) for name in names} | of_parties(scores))

        operation.run = run
        return operation

    def _head(self, place: int, h: Tensor) -> Tensor:
        prediction: Tensor = self.top.module.get_submodule(f"heads.{place}")(h)
        return prediction

    # --- steps ------------------------------------------------------------------------------------------------------

    def _run_step(
        self,
        groups: list[tuple[Batch, list[Received]]],
        arrivals: list[Received],
        promised: dict[int, Handle[Tensor]],
        loss: Handle[float],
        where: str,
    ) -> None:
        self.top.train()
        ((batch, messages),) = groups
        embeddings = [] if self.embedding is None else [self._embedded(batch)]
        fresh: list[Received] = [*embeddings, *messages]
        leaves = [message.value.value.clone().requires_grad_() for message in fresh]
        total = self.total_loss(batch, dict(zip([self._place[each.sender] for each in fresh], leaves, strict=True)))
        set_loss(loss, total.detach(), where)
        gradient, by_leaf = self.top.gradients(total, leaves)
        self.top.step(gradient)
        for message, slope in zip(fresh, by_leaf, strict=True):
            if isinstance(message, OwnEmbedding):
                assert self.embedding is not None
                descend([message.graph], [slope], [self.embedding])
            else:
                promised[id(message)].set(slope)

    def total_loss(self, batch: Batch, h: dict[int, Tensor]) -> Tensor:
        """Return the loss of a step on the embeddings ``h`` of a batch, (rows, width) by the place of their party."""
        places, y = sorted(h), self.y(batch)
        stacked = torch.stack([h[place] for place in places])
        total = stacked.new_zeros(())
        order = self._orders(batch)
        for rows, observed in self._patterns(batch, places):
            mine = stacked[:, rows] if len(rows) < len(batch) else stacked
            target = y[rows] if len(rows) < len(batch) else y
            for place in observed:
                for weight, chosen in self._sets(place, observed, order):
                    mean = mine[[places.index(each) for each in chosen]].mean(0)
                    part = self.parts.task.loss(self._head(place, mean), target)
                    total = total + weight * len(rows) / len(batch) * part
        return total

    @cached_property
    def _present(self) -> NDArray[np.bool_] | None:
        """Which parties have which training rows, (rows, parties), on the host: each step asks."""
        present = self.parts.present
        return None if present is None else present["train"].bool().cpu().numpy()

    def _patterns(self, batch: Batch, places: Sequence[int]) -> Iterator[tuple[Tensor, list[int]]]:
        """Yield the rows of ``batch``, by place, that the same parties have, and these parties."""
        if self._present is None:
            yield torch.arange(len(batch), device=self.device), list(places)
            return
        kinds, which = np.unique(self._present[batch.ids][:, list(places)], axis=0, return_inverse=True)
        for number, kind in enumerate(kinds.tolist()):
            if any(kind):
                rows = torch.from_numpy(np.flatnonzero(which.ravel() == number)).to(self.device)
                yield rows, [place for place, has in zip(places, kind, strict=True) if has]

    def _orders(self, batch: Batch) -> list[list[list[int]]]:
        """Draw an order of all parties for each head and each size of sets: a function of seed and batch."""
        draw = generator(self._seed, SERVER, f"laser_vfl.sets/{batch.origin}/{batch.index}")
        keys = draw.random((self._parties, self._parties, self._parties))
        orders: list[list[list[int]]] = keys.argsort(-1).tolist()
        return orders

    def _sets(
        self, place: int, observed: Sequence[int], orders: list[list[list[int]]]
    ) -> Iterator[tuple[float, list[int]]]:
        """Yield for each size j the weight C(|O| − 1, j − 1)/j and a set of ``observed`` parties with ``place``."""
        here = frozenset(observed)
        for j in range(1, len(observed) + 1):
            others = [each for each in orders[place][j - 1] if each in here and each != place][: j - 1]
            yield comb(len(observed) - 1, j - 1) / j, sorted([place, *others])

    def _cost(self, kind: str, rows: int) -> float:
        further = (self._parties - 1) * self.top.training_flops(rows) if kind == "server_step" else 0.0
        return super()._cost(kind, rows) + further  # a forward pass of all heads is counted once; a step has one a size


def _mean_of(h: Tensor, here: Tensor) -> Tensor:
    """Return the mean embedding of each row over the parties that have it: (rows, width); 0 where nobody has."""
    return (h * here.unsqueeze(2)).sum(1) / here.sum(1, keepdim=True).clamp(min=1)


class LaserVfl(InTime):
    """Rounds in which every party has a head on the mean of any set of embeddings with its own.

    A step uses the observed embeddings: of clients that have the row, and that are in time where ``fastest`` or
    ``deadline`` is given. All heads are at the server, where the labels are; ``models.server`` is one of them. The
    paper's parties hold theirs, and the labels, themselves.

    Examples: ``{kind: laser_vfl, deadline: 2 s}``, ``{kind: laser_vfl, fastest: 3}``
    """

    kind: Literal["laser_vfl"] = "laser_vfl"
    traits: ClassVar[Traits] = replace(
        InTime.traits,
        party_scores=True,
        aggregate=("mean", "heads predict from the mean of embeddings, not their {other}"),
    )

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if None not in (self.fastest, self.deadline):
            raise ValueError("laser_vfl takes fastest or deadline, not both")
        return self

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the clients of split training, and a server with a head for every party."""
        return Learners(SubsetServer(setting, seed), split_clients(setting, seed))
