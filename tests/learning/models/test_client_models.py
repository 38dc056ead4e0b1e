from functools import partial
from typing import Any, get_args

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from vflsim.learning.models.build import seeded
from vflsim.learning.models.client import (
    CLIENT_MODELS,
    AnyClientModel,
    ClientModel,
    CnnClient,
    LenetClient,
    LinearClient,
    MlpClient,
    PolynomialClient,
)
from vflsim.learning.models.footprint import flops_of
from vflsim.learning.models.layers import ACTIVATIONS

SPECS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear", "embedding": 5},
    "polynomial": {"kind": "polynomial", "embedding": 5, "degree": 3},
    "mlp": {"kind": "mlp", "embedding": 5, "hidden": [7, 6]},
    "cnn": {"kind": "cnn", "embedding": 5, "channels": [4, 8]},
    "lenet": {"kind": "lenet", "embedding": 5},
    "resnet18": {"kind": "resnet18", "embedding": 5, "width": 2, "norm": "group"},
    "deepfm": {"kind": "deepfm", "embedding": 5, "factors": 3, "hidden": [7]},
    "wide_deep": {"kind": "wide_deep", "embedding": 5, "factors": 3, "hidden": [7]},
    "module": {"kind": "module", "embedding": 5, "path": "torch.nn:Flatten"},
}
IMAGE = (1, 14, 14)
TABLES = {"deepfm", "wide_deep"}


def parse(spec: dict[str, Any], **context: float) -> ClientModel:
    return TypeAdapter[ClientModel](AnyClientModel).validate_python(spec, context={"symbols": context})


def kind_of(model: type[ClientModel]) -> str:
    return str(model.model_fields["kind"].default)


def test_the_table_and_the_union_name_the_same_models() -> None:
    assert get_args(get_args(AnyClientModel)[0]) == CLIENT_MODELS
    assert {kind_of(model) for model in CLIENT_MODELS} == set(SPECS)


@pytest.mark.parametrize("model", CLIENT_MODELS, ids=kind_of)
def test_every_kind_is_found_by_its_name_and_survives_a_dump(model: type[ClientModel]) -> None:
    parsed = parse(SPECS[kind_of(model)])
    assert type(parsed) is model
    assert parse(parsed.model_dump(mode="json")) == parsed


@pytest.mark.parametrize("kind", sorted(set(SPECS) - {"module"} - TABLES))
@pytest.mark.parametrize("shape", [IMAGE, (3, 28, 28)])
def test_every_model_maps_rows_to_embeddings(kind: str, shape: tuple[int, ...]) -> None:
    model = parse(SPECS[kind])
    model.check(shape)
    assert model.build(shape)(torch.randn(6, *shape)).shape == (6, 5)


@pytest.mark.parametrize("kind", ["linear", "polynomial", "mlp", *sorted(TABLES)])
def test_plain_models_take_plain_features(kind: str) -> None:
    model = parse(SPECS[kind])
    model.check((9,))
    assert model.build((9,))(torch.randn(6, 9)).shape == (6, 5)


@pytest.mark.parametrize("kind", sorted(set(SPECS) - {"module"} - TABLES))
def test_rows_do_not_influence_each_other(kind: str) -> None:
    module = parse(SPECS[kind]).build(IMAGE).double()
    rows = torch.randn(4, *IMAGE, dtype=torch.float64)
    torch.testing.assert_close(module(rows)[2:3], module(rows[2:3]))


def test_an_embedding_may_be_a_formula() -> None:
    assert parse({"kind": "linear", "embedding": "4*m"}, m=3).embedding == 12


def test_a_linear_client_is_an_affine_map() -> None:
    module = LinearClient(embedding=3).build((4,)).double()
    weight, bias = module.parameters()
    x = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(module(x), x @ weight.T + bias)
    assert len(list(LinearClient(embedding=3, bias=False).build((4,)).parameters())) == 1


@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_a_polynomial_client_is_equation_1_of_fedvs(degree: int, bias: bool) -> None:
    module = PolynomialClient(embedding=3, degree=degree, bias=bias).build((4,)).double()
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    expected = torch.zeros(5, 3, dtype=torch.float64)
    weights = [p for p in module.parameters() if p.ndim == 2]
    biases = [p for p in module.parameters() if p.ndim == 1] or [torch.zeros(3)] * degree
    for i, (weight, constant) in enumerate(zip(weights, biases, strict=True), start=1):
        expected = expected + (x**i) @ weight.T + constant
    assert len(weights) == degree
    torch.testing.assert_close(module(x), expected)


def test_the_gradient_of_a_polynomial_client_is_the_hand_written_one() -> None:
    module = PolynomialClient(embedding=2, degree=3).build((4,)).double()
    x, upstream = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    module(x).backward(upstream)
    for i, term in enumerate(module.powers, start=1):
        torch.testing.assert_close(term.weight.grad, upstream.T @ x**i)
        torch.testing.assert_close(term.bias.grad, upstream.sum(0))


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_an_mlp_applies_its_activation_between_layers_only(activation: str) -> None:
    spec = {"kind": "mlp", "embedding": 2, "hidden": [3, 4], "activation": activation}
    module = parse(spec).build((5,))
    apply = ACTIVATIONS[activation]()
    w1, b1, w2, b2, w3, b3 = module.parameters()
    x = torch.randn(6, 5)
    torch.testing.assert_close(module(x), apply(apply(x @ w1.T + b1) @ w2.T + b2) @ w3.T + b3)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_an_output_activation_applies_to_the_embedding_of_the_same_initial_weights(activation: str) -> None:
    spec = {"kind": "mlp", "embedding": 2, "hidden": [3]}
    linear, ours = (
        seeded(partial(parse(said).build, (5,)), 4, torch.float64)
        for said in (spec, {**spec, "output_activation": activation})
    )
    x = torch.randn(6, 5, dtype=torch.float64)
    assert torch.equal(ours(x), ACTIVATIONS[activation]()(linear(x)))
    assert flops_of(ours, (6, 5), torch.float64) == flops_of(linear, (6, 5), torch.float64)  # element-wise work is free


@pytest.mark.parametrize("shape", [(1, 1, 28), (1, 28, 1), (3, 1, 1), (2, 5, 3), (1, 7, 7)])
def test_a_cnn_takes_images_of_any_size(shape: tuple[int, ...]) -> None:
    model = CnnClient(embedding=4, channels=(3, 3, 3, 3))
    model.check(shape)
    assert model.build(shape)(torch.randn(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize(("kernel", "side"), [(1, 8), (3, 8), (5, 8)])
def test_a_cnn_halves_its_images_once_per_block(kernel: int, side: int) -> None:
    module = CnnClient(embedding=4, channels=(3, 6), kernel=kernel).build((1, side, side))
    last = list(module.children())[-1]
    assert isinstance(last, nn.Linear)
    assert last.in_features == 6 * (side // 4) ** 2


@pytest.mark.parametrize("kind", ["cnn", "lenet"])
@pytest.mark.parametrize("shape", [(13,), (4, 7)])
def test_image_models_refuse_columns(kind: str, shape: tuple[int, ...]) -> None:
    model = parse(SPECS[kind])
    with pytest.raises(ValueError, match=rf"{kind} client needs images .*partition by image_rows"):
        model.check(shape)
    with pytest.raises(ValueError, match="needs images"):
        model.build(shape)


@pytest.mark.parametrize("shape", [(1, 1, 28), (1, 28, LenetClient.least_side - 1)])
def test_lenet_refuses_images_that_are_too_small(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 12 × 12 pixels, not"):
        LenetClient(embedding=4).check(shape)


def test_lenet_takes_the_smallest_image_that_it_allows() -> None:
    shape = (1, LenetClient.least_side, LenetClient.least_side)
    model = LenetClient(embedding=4)
    model.check(shape)
    assert model.build(shape)(torch.randn(2, *shape)).shape == (2, 4)


def test_lenet_has_the_textbook_number_of_weights() -> None:
    # LeNet-5 for 28 × 28 grey images and 10 outputs has 61 706 parameters, all of its connections filled in.
    module = LenetClient(embedding=10).build((1, 28, 28))
    assert sum(p.numel() for p in module.parameters()) == 61_706


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"kind": "transformer", "embedding": 5}, "polynomial"),
        ({"kind": "linear"}, "embedding"),
        ({"kind": "linear", "embedding": 0}, "at least 1"),
        ({"kind": "linear", "embedding": 2.5}, "whole number"),
        ({"kind": "linear", "embedding": 5, "hidden": [3]}, "hidden"),
        ({"kind": "polynomial", "embedding": 5}, "degree"),
        ({"kind": "polynomial", "embedding": 5, "degree": 0}, "at least 1"),
        ({"kind": "mlp", "embedding": 5, "hidden": []}, "hidden"),
        ({"kind": "mlp", "embedding": 5, "hidden": [0]}, "at least 1"),
        ({"kind": "mlp", "embedding": 5, "hidden": [3], "activation": "step"}, "relu"),
        ({"kind": "cnn", "embedding": 5, "channels": []}, "channels"),
        ({"kind": "cnn", "embedding": 5, "channels": [4], "kernel": 4}, "odd"),
        ({"kind": "module", "embedding": 5, "path": "os.system"}, "package.module:Class"),
        ({"kind": "module", "embedding": 5, "path": "a b:C"}, "package.module:Class"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(spec: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        parse(spec)


def test_hidden_layers_are_kept_as_they_are_written() -> None:
    assert MlpClient(embedding=2, hidden=(8, 4)).hidden == (8, 4)


@pytest.mark.parametrize("name", SPECS)
def test_models_that_are_polynomials_say_their_powers_and_compute_them(name: str) -> None:
    model = TypeAdapter(AnyClientModel).validate_python(SPECS[name])
    if name not in ("linear", "polynomial"):
        assert model.powers is None
        return
    shape = (4,)
    module = model.build(shape).double()
    x = torch.randn(6, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    linears = [each for each in module.modules() if isinstance(each, nn.Linear)]
    assert len(linears) == model.powers
    h = sum(x**power @ linear.weight.T for power, linear in enumerate(linears, start=1))
    h = h + sum(linear.bias for linear in linears) if model.biased else h
    assert torch.allclose(module(x), h, atol=1e-12)
