"""The ways in which the server joins embeddings into one (FedVS Fig. 1, VIM Sec. 5).

Every aggregate works in client order, never in arrival order: floating-point sums depend on the order. None stands for
a client that is missing; each aggregate defines what that means, and applies it row by row where parties lack rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from vflsim.learning.optimizers import Optimizer, Sgd
from vflsim.vocabulary.base import Part, Shorthand, kind_from_text
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.on_demand import Tensor, nn, torch
from vflsim.vocabulary.quantities import PositiveNumber
from vflsim.vocabulary.trial import Trial


class Aggregate(Part, ABC):
    """Joins M embeddings into one that the server's model takes.

    Example, which a scenario names by ``aggregate: {kind: module, path: "mine:Median"}``::

        class Median(Aggregate):
            kind: Literal["median"] = "median"

            def combine(self, embeddings: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor:
                return torch.stack([h for h in embeddings if h is not None]).median(0).values


        Median().combine([torch.zeros(2, 3), None, torch.ones(2, 3)], [3, 3, 3]).shape  # torch.Size([2, 3])
    """

    kind: str
    """The name of this kind, as scenarios write it."""

    def check(self, widths: Sequence[int], first: int = 1) -> None:
        """Raise ValueError if embeddings of these widths (one per party, from party ``first``) cannot be joined."""
        if len(set(widths)) > 1:
            raise ValueError(
                f"this aggregate works element by element, so all embeddings must be equally wide, not "
                f"{_spelt(widths, first)}; give every client the same embedding, or choose aggregate: concat"
            )

    def width(self, widths: Sequence[int]) -> int:
        """The width of the joint embedding."""
        return widths[0]

    def bound(self, features: Sequence[int], clients: Sequence[int]) -> Aggregate:
        """This aggregate for those who take part: ``clients``, by number (from 1) in client order.

        ``features`` is how many features each client of the scenario holds, whether it takes part or not.
        """
        return self

    def coefficients(self, places: Sequence[int]) -> Sequence[float] | None:
        """c_m of H = Σ c_m h_m over the clients at ``places`` (from 0, in client order), all others being missing.

        None where the aggregate is no such sum.
        """
        return None

    def module(self, parties: int) -> nn.Module | None:
        """Make what is trained of this aggregate, if anything: a module that takes the place of ``combine``."""
        return None

    def rule(self, server: Optimizer) -> Optimizer:
        """The update rule of ``module``, where the server's model has the rule ``server``."""
        return server

    @abstractmethod
    def combine(self, embeddings: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor:
        """Join embeddings, one per client in client order, None where it is missing.

        ``embeddings[m - 1]`` is (b, widths[m - 1]); the result is (b, ``width(widths)``). Differentiable in every
        embedding. Raises ValueError when all are missing.
        """

    def combine_present(self, embeddings: Sequence[Tensor | None], widths: Sequence[int], present: Tensor) -> Tensor:
        """Join embeddings of which the rows that are not ``present``, (b, M) of bool, are missing, too.

        Zeros take their place unless an aggregate says otherwise; so they do in rows that no client has.
        """
        return self.combine(with_zeros(embeddings, present), widths)

    def _contract_at(self, trial: Trial, widths: Sequence[int]) -> None:
        """Join zeros of these widths, of all parties and of all but the first."""
        joins, rows = self.module(len(widths)), 2
        everyone = [torch.zeros(rows, each) for each in widths]
        for embeddings in ([*everyone], [None, *everyone[1:]])[: len(widths)]:
            joined = self.combine(embeddings, widths) if joins is None else joins(embeddings)
            shape, dtype = (rows, self.width(widths)), getattr(joined, "dtype", torch.float32)
            trial.must_be_tensor("combine", joined, shape, dtype, f"for {rows} rows of zeros")
            places = [place for place, h in enumerate(embeddings) if h is not None]
            known = self.coefficients(places)
            what = f"{trial.name}.coefficients gives {0 if known is None else len(known)} for {len(places)} embeddings"
            trial.must(known is None or len(known) == len(places), what, "one each", "coefficients")


class _Mean(Aggregate, ABC):
    """A mean with weights over the embeddings that are present."""

    def combine_present(self, embeddings: Sequence[Tensor | None], widths: Sequence[int], present: Tensor) -> Tensor:
        """The mean over those that are present in a row, their weights made to add up to 1 there."""
        places = [place for place, h in enumerate(embeddings) if h is not None]
        values = torch.stack([h for h in with_zeros(embeddings, present) if h is not None], 1)
        there = torch.tensor(self.coefficients(places), dtype=values.dtype, device=values.device) * present[:, places]
        shares = there / there.sum(1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)
        return (shares[:, None] @ values).squeeze(1)


class MeanAggregate(_Mean):
    """H = (1/M) Σ h_m (FedVS Sec. 3): the mean over the embeddings that are present.

    Example: ``{kind: mean}``
    """

    kind: Literal["mean"] = "mean"

    def coefficients(self, places: Sequence[int]) -> Sequence[float]:
        """1 / how many are present."""
        return [1 / len(places)] * len(places)

    def combine(self, embeddings: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor:
        """The mean over the present embeddings."""
        return torch.stack(_present(embeddings)).mean(0)


class SumAggregate(Aggregate):
    """H = Σ h_m: the sum of the embeddings that are present.

    Example: ``{kind: sum}``
    """

    kind: Literal["sum"] = "sum"

    def coefficients(self, places: Sequence[int]) -> Sequence[float]:
        """1."""
        return [1.0] * len(places)

    def combine(self, embeddings: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor:
        """The sum of the present embeddings."""
        return torch.stack(_present(embeddings)).sum(0)


class MaxAggregate(Aggregate):
    """The element-wise maximum; a missing embedding never wins, and a tie's gradient goes to the first client.

    Example: ``{kind: max}``
    """

    kind: Literal["max"] = "max"

    def combine(self, embeddings: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor:
        """The maximum over the present embeddings."""
        # Not amax: it splits the gradient of a tie evenly. max(dim) documents that the first of equals is taken.
        return torch.stack(_present(embeddings)).max(0).values

    def combine_present(self, embeddings: Sequence[Tensor | None], widths: Sequence[int], present: Tensor) -> Tensor:
        """The maximum over those that are present in a row; zeros where none is."""
        pairs = zip(embeddings, present.T, strict=True)
        values = [None if h is None else h.masked_fill(~there[:, None], -torch.inf) for h, there in pairs]
        largest = self.combine(values, widths)
        return largest.masked_fill(largest == -torch.inf, 0.0)


class ConcatAggregate(Aggregate):
    """The embeddings side by side in client order, zeros in the place of a missing one.

    Example: ``{kind: concat}``
    """

    kind: Literal["concat"] = "concat"

    def check(self, widths: Sequence[int], first: int = 1) -> None:
        """Accept any widths."""

    def width(self, widths: Sequence[int]) -> int:
        """The sum of the widths."""
        return sum(widths)

    def combine(self, embeddings: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor:
        """The embeddings, or zeros, side by side."""
        like = _present(embeddings)[0]
        parts = (
            like.new_zeros(like.shape[0], width) if h is None else h
            for h, width in zip(embeddings, widths, strict=True)
        )
        return torch.cat(tuple(parts), dim=1)


class WeightedAggregate(_Mean):
    """The weighted mean Σ w_m h_m / Σ w_m over the embeddings that are present (VIM Sec. 5's variant of VAFL).

    The weights are given by either ``by`` or ``weights``.

    Examples: ``{kind: weighted, by: features}``, ``{kind: weighted, weights: [2, 1, 1, 1]}``
    """

    kind: Literal["weighted"] = "weighted"
    by: Literal["features"] | None = None
    """``features``: a client weighs as much as it holds features (pixels, for images)."""
    weights: Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] | None = None
    """One weight per client, in client order, after that of an active server; they need not add up to 1."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.by is None) == (self.weights is None):
            raise ValueError("a weighted aggregate needs either by: features or weights: [one per client]")
        return self

    def check(self, widths: Sequence[int], first: int = 1) -> None:
        """Demand one weight per party, and equal widths."""
        super().check(widths, first)
        if self.weights is not None and len(self.weights) != len(widths):
            parties, party = ("clients", "client") if first else ("parties", "party, the server first")
            raise ValueError(f"there are {len(widths)} {parties} but {len(self.weights)} weights; give one per {party}")

    def bound(self, features: Sequence[int], clients: Sequence[int]) -> WeightedAggregate:
        """The weights of those who take part, spelt out."""
        weights = features if self.weights is None else self.weights
        return WeightedAggregate(weights=tuple(weights[m - 1] for m in clients))

    def coefficients(self, places: Sequence[int]) -> Sequence[float]:
        """The weights of those present, made to add up to 1."""
        if self.weights is None:
            raise ValueError("weights by features are not known yet; combine with aggregate.bound(features, clients)")
        present = [self.weights[place] for place in places]
        return [weight / sum(present) for weight in present]

    def combine(self, embeddings: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor:
        """The mean over the present embeddings, their weights made to add up to 1."""
        places = [place for place, h in enumerate(embeddings) if h is not None]
        pairs = zip(self.coefficients(places), _present(embeddings), strict=True)
        return torch.stack([h * weight for weight, h in pairs]).sum(0)


class LearnedMeanAggregate(Aggregate):
    """H = Σ α_m h_m over the embeddings that are present, with trained weights α (VAFL as VIM Sec. 3.1 describes it).

    The server holds the weights. They start at 1/M for M parties, and nothing keeps their sum at 1: so it is in the
    program of VIM's authors.

    Example: ``{kind: learned_mean, lr: 0.01}``
    """

    kind: Literal["learned_mean"] = "learned_mean"
    lr: PositiveNumber | None = None
    """The learning rate of plain SGD for the weights. Left out, ``training.server_optimizer`` trains them."""

    def module(self, parties: int) -> nn.Module:
        """The weighted sum."""
        from vflsim.learning.models.layers import WeightedSum

        return WeightedSum(parties)

    def rule(self, server: Optimizer) -> Optimizer:
        """Plain SGD with ``lr``, or the server's."""
        return server if self.lr is None else Sgd(lr=self.lr)

    def combine(self, embeddings: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor:
        """The weighted sum before training: Σ h_m / M."""
        return torch.stack(_present(embeddings)).sum(0) / len(embeddings)


AggregateKind: TypeAlias = (
    MeanAggregate | SumAggregate | MaxAggregate | ConcatAggregate | WeightedAggregate | LearnedMeanAggregate
)
AGGREGATES: tuple[type[Aggregate], ...] = get_args(AggregateKind)


def _expanded(value: Any) -> Any:
    """``mean`` is short for ``{kind: mean}``, and ``weighted`` for ``{kind: weighted, by: features}``."""
    return {"kind": "weighted", "by": "features"} if value == "weighted" else kind_from_text(value)


AnyAggregate = Annotated[
    AggregateKind,
    Field(discriminator="kind"),
    OrModule(Aggregate),
    Shorthand(_expanded, {"enum": ["mean", "sum", "max", "concat", "weighted", "learned_mean"]}),
]


def with_zeros(embeddings: Sequence[Tensor | None], present: Tensor) -> list[Tensor | None]:
    """Put zeros in the place of rows that are not ``present``, (b, M) of bool."""
    pairs = zip(embeddings, present.T, strict=True)
    return [None if h is None else h.masked_fill(~there[:, None], 0.0) for h, there in pairs]


def _present(embeddings: Sequence[Tensor | None]) -> list[Tensor]:
    present = [h for h in embeddings if h is not None]
    if not present:
        raise ValueError(f"all {len(embeddings)} embeddings are missing; at least one is needed")
    return present


def _spelt(widths: Sequence[int], first: int) -> str:
    names = ("client" if party else "the server" for party in range(first, first + len(widths)))
    numbered = enumerate(zip(widths, names, strict=True), start=first)
    return ", ".join(f"{width} ({name}{f' {party}' if party else ''})" for party, (width, name) in numbered)
