"""Layers, and networks of tables."""

import copy
import pickle
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vflsim.learning.models.build import least_batch, mixes_rows, seeded, weights_of
from vflsim.learning.models.client import (
    ClientModel,
    DeepFmClient,
    LinearClient,
    MlpClient,
    ModuleClient,
    Resnet18Client,
    WideDeepClient,
)
from vflsim.learning.models.footprint import flops_of
from vflsim.learning.models.layers import FieldVectors, OneHot
from vflsim.learning.models.shapes import Norm, TableShape, cardinalities_of


def test_resnet18_has_the_weights_of_the_usual_one_for_small_images() -> None:
    """Known of ResNet-18 on CIFAR-10: 11,173,962 weights, and 0.56 · 10⁹ multiply-adds an image."""
    assert weights_of(lambda: Resnet18Client(embedding=10).build((3, 32, 32)))[0] == 11_173_962


@pytest.mark.parametrize("shape", [(3, 32, 8), (1, 7, 28), (1, 1, 28)])
def test_any_piece_of_an_image_will_do(shape: tuple[int, ...]) -> None:
    model = Resnet18Client(embedding=4, width=2)
    model.check(shape)
    assert model.build(shape)(torch.randn(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize(("norm", "least"), [("batch", 2), ("group", 1)])
def test_batch_normalisation_mixes_rows_and_needs_two(norm: Norm, least: int) -> None:
    """Of 8 × 8 pixels the last blocks see one, so that one row has no spread."""
    shape = (1, 8, 8)
    module = seeded(lambda: Resnet18Client(embedding=4, width=2, norm=norm).build(shape), 0, torch.float64)
    assert mixes_rows(module, shape) is (norm == "batch")
    assert least_batch(module, shape) == least


def test_a_table_is_no_image() -> None:
    with pytest.raises(ValueError, match="a resnet18 client needs images"):
        Resnet18Client(embedding=4).check((9,))


CARDINALITIES = (0, 3, 0, 4)
"""A number, a column of two categories, a number, and a column of three."""
SHAPE = TableShape(CARDINALITIES)
X = torch.tensor([[0.5, 1, -2, 3], [1.5, 2, 0.25, 0], [-1, 0, 3, 1]], dtype=torch.float64)
MODELS: dict[str, ClientModel] = {
    "deepfm": DeepFmClient(embedding=2, factors=3, hidden=(5,)),
    "wide_deep": WideDeepClient(embedding=2, factors=3, hidden=(5,)),
    "linear": LinearClient(embedding=2),
    "mlp": MlpClient(embedding=2, hidden=(5,)),
}
models = pytest.mark.parametrize("kind", MODELS)


class Codes(nn.Module):
    """A user's module, which names the cardinalities."""

    def __init__(self, feature_shape: tuple[int, ...], embedding: int, cardinalities: tuple[int, ...]) -> None:
        super().__init__()
        self.given, self.layer = (feature_shape, cardinalities), nn.Linear(feature_shape[0], embedding)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)


def made(kind: str) -> nn.Module:
    return seeded(lambda: MODELS[kind].build(SHAPE), 3, torch.float64)


def vectors_of(fields: FieldVectors, row: Tensor) -> dict[int, Tensor]:
    """Each column's vector, looked up column by column."""
    assert fields.numbers is not None
    assert fields.categories is not None
    first, table = {1: 0, 3: 2}, fields.categories.weight  # two categories before those of column 3
    found = {0: row[0] * fields.numbers[0], 2: row[2] * fields.numbers[1]}
    zero = torch.zeros_like(table[0])
    return found | {j: table[int(row[j]) + first[j]] if row[j] else zero for j in first}


def test_a_shape_is_that_of_a_table_and_knows_its_categories() -> None:
    assert tuple(SHAPE) == (4,)
    assert TableShape(CARDINALITIES) == SHAPE
    assert SHAPE != (4,)
    assert TableShape((0, 3, 0, 5)) != SHAPE
    assert pickle.loads(pickle.dumps(SHAPE)) == copy.deepcopy(SHAPE) == SHAPE
    assert cardinalities_of(SHAPE) == CARDINALITIES
    assert cardinalities_of((2,)) == (0, 0)


def test_one_hot_columns_by_hand() -> None:
    assert OneHot(CARDINALITIES).width == 7
    wanted = [[0.5, 1, 0, -2, 0, 0, 1], [1.5, 0, 1, 0.25, 0, 0, 0], [-1, 0, 0, 3, 1, 0, 0]]
    assert OneHot(CARDINALITIES)(X).tolist() == wanted


def test_deepfm_equals_its_sums_written_out() -> None:
    module: Any = made("deepfm")
    for x, h in zip(X, module(X), strict=True):
        v, w = vectors_of(module.vectors, x), vectors_of(module.linear, x)
        pairs = sum(v[j] * v[k] for j, k in combinations(v, 2))
        deep = module.deep(torch.cat([v[0], v[2], v[1], v[3]]))
        assert torch.allclose(h, sum(w.values()) + module.pairs.weight @ pairs + deep, atol=1e-14)


def test_wide_and_deep_equals_its_sums_written_out() -> None:
    module: Any = made("wide_deep")
    table, zero = module.vectors.categories.weight, torch.zeros(3, dtype=torch.float64)
    for x, h in zip(X, module(X), strict=True):
        looked_up = [table[int(x[1])] if x[1] else zero, table[int(x[3]) + 2] if x[3] else zero]
        deep = module.deep(torch.cat([x[[0, 2]], *looked_up]))
        assert torch.allclose(h, sum(vectors_of(module.wide, x).values()) + deep, atol=1e-14)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_other_models_get_categories_one_hot(kind: str) -> None:
    module: Any = made(kind)
    plain = seeded(lambda: MODELS[kind].build((7,)), 3, torch.float64)
    assert torch.equal(module(X), plain(OneHot(CARDINALITIES)(X)))


@models
def test_a_category_without_training_rows_moves_nothing(kind: str) -> None:
    """Code 0 contributes zero, and gets no gradient."""
    module, coded = made(kind), X.clone()
    coded[:, [1, 3]] = 0
    module(coded).square().sum().backward()
    if kind in ("deepfm", "wide_deep"):
        tables = [each for each in module.modules() if isinstance(each, nn.Embedding)]
        assert len(tables) == 2
        for table in tables:
            assert table.weight.grad is not None
            assert not table.weight.grad.any()
            assert not table.weight[0].any()
    else:
        (first,) = [each for each in module.modules() if isinstance(each, nn.Linear)][:1]
        assert first.weight.grad is not None
        assert not first.weight.grad[:, [1, 2, 4, 5, 6]].any()


@models
def test_models_of_tables_are_counted_and_keep_rows_apart(kind: str) -> None:
    module = made(kind)
    assert min(flops_of(module, (6, 4), torch.float64)) > 0
    assert not mixes_rows(module, SHAPE)


@pytest.mark.parametrize("counts", [(0, 0), (3, 4)], ids=["numbers", "categories"])
@models
def test_a_party_may_hold_numbers_or_categories_alone(kind: str, counts: tuple[int, ...]) -> None:
    x = torch.ones(5, 2)
    assert MODELS[kind].build(TableShape(counts))(x).shape == (5, 2)


def test_a_users_module_may_ask_for_the_codes() -> None:
    path = f"{__name__}:Codes"
    module: Any = ModuleClient(embedding=2, path=path).build(SHAPE)
    assert module.given == (SHAPE, CARDINALITIES)
    one_hot: Any = ModuleClient(embedding=2, path="torch.nn:Linear", arguments={"in_features": 7, "out_features": 2})
    one_hot.check(SHAPE)
    assert isinstance(one_hot.build(SHAPE)[0], OneHot)


@pytest.mark.parametrize("kind", ["deepfm", "wide_deep"])
def test_images_are_no_tables(kind: str) -> None:
    with pytest.raises(ValueError, match=f"a {kind} client needs the columns of a table.*choose cnn"):
        MODELS[kind].check((1, 8, 8))
