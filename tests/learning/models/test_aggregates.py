from collections.abc import Sequence
from typing import Any, get_args

import pytest
import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor

from vflsim.learning.models.aggregates import (
    AGGREGATES,
    Aggregate,
    AnyAggregate,
    ConcatAggregate,
    LearnedMeanAggregate,
    MaxAggregate,
    MeanAggregate,
    SumAggregate,
    WeightedAggregate,
)

ROWS, CLIENTS, WIDTH = 5, 4, 3
WEIGHTS = (1.0, 2.0, 3.0, 10.0)
BUILT: dict[str, Aggregate] = {
    "mean": MeanAggregate(),
    "sum": SumAggregate(),
    "max": MaxAggregate(),
    "concat": ConcatAggregate(),
    "weighted": WeightedAggregate(weights=WEIGHTS),
    "learned_mean": LearnedMeanAggregate(),
}


class Holder(BaseModel):
    aggregate: AnyAggregate


def parse(value: Any) -> Aggregate:
    return Holder.model_validate({"aggregate": value}).aggregate


def embeddings(clients: int = CLIENTS, width: int = WIDTH, rows: int = ROWS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(rows, width, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(clients)]


def by_hand(kind: str, hs: Sequence[Tensor | None]) -> Tensor:
    """Loops over rows and columns, written straight from the definitions."""
    if kind == "concat":
        return torch.cat([torch.zeros(ROWS, WIDTH, dtype=torch.float64) if h is None else h for h in hs], dim=1)
    present = [(w, h) for w, h in zip(WEIGHTS, hs, strict=True) if h is not None]
    result = torch.empty(ROWS, WIDTH, dtype=torch.float64)
    for row in range(ROWS):
        for column in range(WIDTH):
            values = [(w, h[row, column].item()) for w, h in present]
            plain = [v for _, v in values]
            result[row, column] = {
                "mean": sum(plain) / len(plain),
                "learned_mean": sum(plain) / len(hs),
                "sum": sum(plain),
                "max": max(plain),
                "weighted": sum(w * v for w, v in values) / sum(w for w, _ in values),
            }[kind]
    return result


def slope(kind: str, m: int, hs: Sequence[Tensor | None], upstream: Tensor) -> Tensor:
    """The gradient that client m (from 0) must get, by hand."""
    present = [k for k, h in enumerate(hs) if h is not None]
    if kind == "concat":
        return upstream[:, m * WIDTH : (m + 1) * WIDTH]
    if kind == "max":
        won = torch.ones(ROWS, WIDTH, dtype=torch.bool)
        for k in present:
            if k != m:
                won &= hs[m] > hs[k]
        return upstream * won
    share = {"mean": 1 / len(present), "sum": 1.0, "learned_mean": 1 / len(hs)}
    share["weighted"] = WEIGHTS[m] / sum(WEIGHTS[k] for k in present)
    return upstream * share[kind]


def kind_of(aggregate: type[Aggregate]) -> str:
    return str(aggregate.model_fields["kind"].default)


def test_the_table_and_the_union_name_the_same_aggregates() -> None:
    assert get_args(get_args(AnyAggregate)[0]) == AGGREGATES
    assert {kind_of(aggregate) for aggregate in AGGREGATES} == set(BUILT)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("missing", [(), (0,), (3,), (1, 2), (0, 1, 3)], ids=str)
@pytest.mark.parametrize("kind", sorted(BUILT))
def test_values_and_gradients_are_those_of_the_definition(kind: str, missing: tuple[int, ...]) -> None:
    hs = [None if m in missing else h for m, h in enumerate(embeddings())]
    joint = BUILT[kind].combine(hs, [WIDTH] * CLIENTS)
    assert joint.shape == (ROWS, BUILT[kind].width([WIDTH] * CLIENTS))
    torch.testing.assert_close(joint, by_hand(kind, hs), rtol=1e-14, atol=1e-14)
    upstream = torch.randn_like(joint)
    joint.backward(upstream)
    for m, h in enumerate(hs):
        if h is not None:
            torch.testing.assert_close(h.grad, slope(kind, m, hs, upstream), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kind", sorted(BUILT.keys() - {"learned_mean"}))
@pytest.mark.parametrize("only", range(CLIENTS))
def test_a_single_embedding_passes_unchanged(kind: str, only: int) -> None:
    hs = [h if m == only else None for m, h in enumerate(embeddings())]
    joint = BUILT[kind].combine(hs, [WIDTH] * CLIENTS)
    at = only * WIDTH if kind == "concat" else 0
    assert torch.equal(joint[:, at : at + WIDTH], embeddings()[only])


@pytest.mark.parametrize("kind", sorted(BUILT))
def test_nothing_at_all_cannot_be_joined(kind: str) -> None:
    with pytest.raises(ValueError, match="all 4 embeddings are missing"):
        BUILT[kind].combine([None] * CLIENTS, [WIDTH] * CLIENTS)


@pytest.mark.parametrize("rows", [1, 7, 64, 257])
@pytest.mark.parametrize("width", [1, 3, 32, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tie_for_the_maximum_pays_the_first_client(rows: int, width: int, dtype: torch.dtype) -> None:
    low = torch.full((rows, width), -1.0, dtype=dtype, requires_grad=True)
    tied = [torch.zeros(rows, width, dtype=dtype, requires_grad=True) for _ in range(6)]
    hs = [low, None, *tied]
    MaxAggregate().combine(hs, [width] * len(hs)).sum().backward()
    assert torch.equal(tied[0].grad, torch.ones(rows, width, dtype=dtype))
    assert all(not h.grad.any() for h in (low, *tied[1:]))


def test_ties_are_settled_element_by_element() -> None:
    a = torch.tensor([[1.0, 0.0, 2.0]], requires_grad=True)
    b = torch.tensor([[1.0, 3.0, 1.0]], requires_grad=True)
    c = torch.tensor([[0.0, 3.0, 2.0]], requires_grad=True)
    MaxAggregate().combine([a, b, c], [3, 3, 3]).sum().backward()
    assert a.grad.tolist() == [[1, 0, 1]]
    assert b.grad.tolist() == [[0, 1, 0]]
    assert c.grad.tolist() == [[0, 0, 0]]


def test_a_missing_embedding_never_wins_the_maximum() -> None:
    negative = torch.full((2, 3), -5.0)
    assert torch.equal(MaxAggregate().combine([None, negative, None], [3, 3, 3]), negative)


@pytest.mark.parametrize("kind", sorted(BUILT))
def test_a_nan_is_not_hidden(kind: str) -> None:
    hs = embeddings()
    with torch.no_grad():
        hs[2][1, 0] = torch.nan
    assert BUILT[kind].combine(hs, [WIDTH] * CLIENTS).isnan().any()


def test_concatenation_takes_embeddings_of_different_widths() -> None:
    widths = [2, 5, 1]
    hs = [torch.full((4, width), float(width)) for width in widths]
    ConcatAggregate().check(widths)
    assert ConcatAggregate().width(widths) == 8
    assert torch.equal(ConcatAggregate().combine(hs, widths), torch.cat(hs, dim=1))
    hollow = ConcatAggregate().combine([hs[0], None, hs[2]], widths)
    assert torch.equal(hollow, torch.cat([hs[0], torch.zeros(4, 5), hs[2]], dim=1))


@pytest.mark.parametrize("kind", sorted(set(BUILT) - {"concat"}))
def test_other_aggregates_refuse_different_widths(kind: str) -> None:
    BUILT[kind].check([WIDTH] * CLIENTS)
    with pytest.raises(ValueError, match=r"equally wide, not 3 \(client 1\), 3 \(client 2\), 4 \(client 3\).*concat"):
        BUILT[kind].check([3, 3, 4, 3])


def test_weights_by_features_are_the_features_each_client_holds() -> None:
    hs = embeddings()
    by_features = parse("weighted")
    with pytest.raises(ValueError, match="bound"):
        by_features.combine(hs, [WIDTH] * CLIENTS)
    bound = by_features.bound([1, 2, 3, 10], clients=[1, 2, 3, 4])
    assert bound == WeightedAggregate(weights=WEIGHTS)
    assert torch.equal(bound.combine(hs, [WIDTH] * CLIENTS), BUILT["weighted"].combine(hs, [WIDTH] * CLIENTS))


@pytest.mark.parametrize("weighted", [WeightedAggregate(by="features"), WeightedAggregate(weights=WEIGHTS)], ids=repr)
def test_an_excluded_client_takes_its_weight_with_it(weighted: WeightedAggregate) -> None:
    hs, clients = embeddings(), [1, 3, 4]
    bound = weighted.bound([1, 2, 3, 10], clients)
    bound.check([WIDTH] * 3)
    apart = bound.combine([hs[m - 1] for m in clients], [WIDTH] * 3)
    torch.testing.assert_close(apart, by_hand("weighted", [hs[0], None, hs[2], hs[3]]))


def test_aggregates_without_weights_are_bound_already() -> None:
    for kind in set(BUILT) - {"weighted"}:
        assert BUILT[kind].bound([1, 2, 3, 10], clients=[1, 3]) == BUILT[kind]


def test_weights_need_one_entry_per_client() -> None:
    with pytest.raises(ValueError, match="4 clients but 2 weights"):
        WeightedAggregate(weights=(1, 2)).check([WIDTH] * CLIENTS)


@pytest.mark.parametrize("kind", sorted(set(BUILT) - {"weighted"}))
def test_a_name_is_short_for_a_kind(kind: str) -> None:
    assert parse(kind) == parse({"kind": kind}) == BUILT[kind]


@pytest.mark.parametrize("value", [*BUILT.values(), WeightedAggregate(by="features")], ids=repr)
def test_every_aggregate_survives_a_dump(value: Aggregate) -> None:
    assert parse(value.model_dump(mode="json")) == value


def test_a_bare_weighted_goes_by_features() -> None:
    assert parse("weighted") == parse({"kind": "weighted", "by": "features"})


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("median", "concat"),
        ({"kind": "weighted"}, "either by: features or weights"),
        ({"kind": "weighted", "by": "features", "weights": [1, 2]}, "either by: features or weights"),
        ({"kind": "weighted", "weights": []}, "at least 1"),
        ({"kind": "weighted", "weights": [1, 0]}, "above 0"),
        ({"kind": "weighted", "by": "rows"}, "features"),
        ({"kind": "mean", "weights": [1]}, "weights"),
        (3, "aggregate"),
    ],
)
def test_what_is_no_aggregate_is_refused(value: Any, word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        parse(value)


def test_the_schema_knows_the_short_forms() -> None:
    schema = Holder.model_json_schema()["properties"]["aggregate"]
    assert "weighted" in str(schema)


@pytest.mark.parametrize("missing", [(), (1,)], ids=str)
@pytest.mark.parametrize("kind", sorted(BUILT))
def test_a_row_that_a_client_lacks_is_missing_in_that_row_alone(kind: str, missing: tuple[int, ...]) -> None:
    """Values and gradients are those of each row by itself, without the clients that lack it."""
    present = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1], [1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 1, 0]], dtype=torch.bool)
    hs = [None if m in missing else h for m, h in enumerate(embeddings())]
    joint = BUILT[kind].combine_present(hs, [WIDTH] * CLIENTS, present)
    upstream = torch.randn_like(joint)
    joint.backward(upstream)
    alone = [None if h is None else h.detach().clone().requires_grad_() for h in hs]
    for row in range(ROWS):
        ones = [None if h is None or not present[row, m] else h[row : row + 1] for m, h in enumerate(alone)]
        of_row = BUILT[kind].combine(ones, [WIDTH] * CLIENTS)
        torch.testing.assert_close(joint[row : row + 1], of_row, rtol=1e-14, atol=1e-14)
        of_row.backward(upstream[row : row + 1])
    for h, expected in zip(hs, alone, strict=True):
        if h is not None:
            torch.testing.assert_close(h.grad, expected.grad, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kind", sorted(BUILT))
def test_a_row_that_nobody_has_enters_as_zeros_and_moves_nobody(kind: str) -> None:
    hs, present = embeddings(), torch.ones(ROWS, CLIENTS, dtype=torch.bool)
    present[2] = False
    joint = BUILT[kind].combine_present(hs, [WIDTH] * CLIENTS, present)
    assert not joint[2].any()
    joint.sum().backward()
    assert all(not h.grad[2].any() and h.grad.isfinite().all() for h in hs)
