from functools import partial
from typing import Any, get_args

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from vflsim.learning.models.build import seeded
from vflsim.learning.models.server import (
    SERVER_MODELS,
    AnyServerModel,
    LayersServer,
    LogisticServer,
    MlpServer,
    ServerModel,
    VggServer,
)
from vflsim.learning.tasks import BINARY

SPECS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear"},
    "mlp": {"kind": "mlp", "hidden": [7, 6], "batch_norm": True},
    "layers": {"kind": "layers", "layers": [7, "batch_norm", 6, "tanh", "batch_norm"], "weight_norm": True},
    "vgg": {"kind": "vgg", "side": 1, "channels": [4, 5], "hidden": [6], "batch_norm": True},
    "logistic": {"kind": "logistic"},
    "module": {"kind": "module", "path": "normed_module:Head"},
}


def parse(spec: dict[str, Any]) -> ServerModel:
    return TypeAdapter[ServerModel](AnyServerModel).validate_python(spec)


def kind_of(model: type[ServerModel]) -> str:
    return str(model.model_fields["kind"].default)


def test_the_table_and_the_union_name_the_same_models() -> None:
    assert get_args(get_args(AnyServerModel)[0]) == SERVER_MODELS
    assert {kind_of(model) for model in SERVER_MODELS} == set(SPECS)


@pytest.mark.parametrize("model", SERVER_MODELS, ids=kind_of)
@pytest.mark.parametrize("outputs", [BINARY.outputs(2), 3])
def test_every_kind_maps_embeddings_to_outputs_and_survives_a_dump(model: type[ServerModel], outputs: int) -> None:
    parsed = parse(SPECS[kind_of(model)])
    assert type(parsed) is model
    assert parse(parsed.model_dump(mode="json")) == parsed
    parsed.check(outputs, outputs)
    assert parsed.build(outputs, outputs)(torch.randn(6, outputs)).shape == (6, outputs)


def test_fan_in_scales_the_initial_weights_of_a_linear_server() -> None:
    """(Σ d_f = 840) columns with the fan-in of one embedding: every head is as large as a layer of its own."""
    whole, heads = (
        seeded(partial(parse({"kind": "linear", **said}).build, 840, 10), 3, torch.float64)
        for said in ({}, {"fan_in": 60})
    )
    for one, other in zip(whole.parameters(), heads.parameters(), strict=True):
        torch.testing.assert_close(other, one * 14**0.5, rtol=1e-6, atol=0)
    weight = next(heads.parameters()).detach()
    assert 0.99 < float(weight.abs().max()) * 60**0.5 <= 1
    assert float(weight.std()) == pytest.approx((3 * 60) ** -0.5, rel=0.02)  # of 8,400 uniform numbers


def test_an_mlp_alternates_its_layers_and_ends_linear() -> None:
    def kinds(model: MlpServer) -> list[type[nn.Module]]:
        return [type(layer) for layer in model.build(5, 3).children()]

    assert kinds(MlpServer(hidden=(8, 4))) == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    assert kinds(MlpServer(hidden=(8,), batch_norm=True, activation="tanh")) == [
        nn.Linear,
        nn.BatchNorm1d,
        nn.Tanh,
        nn.Linear,
    ]


def test_the_layers_of_a_server_stand_in_the_order_in_which_they_are_named() -> None:
    module = parse({"kind": "layers", "layers": [8, "batch_norm", 4, "relu", "batch_norm"]}).build(5, 3)
    assert [type(layer) for layer in module.children()] == [
        nn.Linear,
        nn.BatchNorm1d,
        nn.Linear,
        nn.ReLU,
        nn.BatchNorm1d,
        nn.Linear,
    ]
    assert [tuple(weight.shape) for weight in module.parameters()][::2] == [(8, 5), (8,), (4, 8), (4,), (3, 4)]


def test_the_width_of_a_layer_may_be_a_formula() -> None:
    symbols = {"symbols": {"N": 8, "width": 10}}
    spec = {"kind": "layers", "layers": ["2*N", "relu", "width"]}
    parsed = TypeAdapter[ServerModel](AnyServerModel).validate_python(spec, context=symbols)
    assert isinstance(parsed, LayersServer)
    assert parsed.layers == (16, "relu", 10)


def test_weight_normalisation_trains_length_and_direction_of_the_last_layer_apart() -> None:
    module = parse({"kind": "layers", "layers": [4], "weight_norm": True}).build(5, 3)
    length, direction = (module.get_parameter(f"1.parametrizations.weight.original{n}") for n in (0, 1))
    assert (length.shape, direction.shape) == ((3, 1), (3, 4))
    with torch.no_grad():
        direction.mul_(7)
        length.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    torch.testing.assert_close(module[1].weight.norm(dim=1), torch.tensor([1.0, 2.0, 3.0]))


def test_vgg13_has_its_layers_and_weights() -> None:
    server = VggServer(side=32, channels=(64, 128, 256, 512, 512), hidden=(4096, 4096))
    with torch.device("meta"):
        module = server.build(3 * 32 * 32, 1000)
    kinds = [type(layer) for layer in module.modules()]
    assert (kinds.count(nn.Conv2d), kinds.count(nn.MaxPool2d), kinds.count(nn.Linear)) == (10, 5, 3)
    convolutions = sum(
        p.numel() for layer in module.modules() if isinstance(layer, nn.Conv2d) for p in layer.parameters()
    )
    assert convolutions == 9_404_992  # as in Simonyan & Zisserman's configuration B


def test_a_vgg_sees_the_embedding_as_an_image() -> None:
    module = VggServer(side=6, channels=(1,)).build(36, 2)
    first = next(layer for layer in module.modules() if isinstance(layer, nn.Conv2d))
    with torch.no_grad():
        h = torch.zeros(1, 36)
        bare = module[:2](h)
        h[0, 13] = 1.0
        touched = (module[:2](h) != bare).nonzero()[:, 2:].tolist()
    assert first.kernel_size == (3, 3)
    assert touched == [[row, column] for row in (1, 2, 3) for column in (0, 1, 2)]


def test_a_vgg_refuses_embeddings_that_do_not_fill_its_image() -> None:
    with pytest.raises(ValueError, match=r"side 16 takes aggregated embeddings of 256 columns.*they have 64"):
        VggServer(side=16, channels=(8,)).check(64, 10)
    VggServer(side=16, channels=(8,)).check(512, 10)


def test_a_logistic_server_adds_a_bias_that_starts_at_zero() -> None:
    module = LogisticServer().build(3, 3)
    h = torch.randn(4, 3)
    assert torch.equal(module(h), h)
    (bias,) = module.parameters()
    with torch.no_grad():
        bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(module(h), h + torch.tensor([1.0, 2.0, 3.0]))


def test_a_logistic_server_refuses_embeddings_that_are_not_the_logits() -> None:
    with pytest.raises(ValueError, match=r"must be 10 wide, not 32; set embedding: 10"):
        LogisticServer().check(32, 10)
    with pytest.raises(ValueError, match="must be 10 wide"):
        LogisticServer().build(32, 10)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"kind": "vgg13"}, "logistic"),
        ({"kind": "layers", "layers": [64, "rleu"]}, "there is no layer 'rleu'; allowed: .*batch_norm, relu"),
        ({"kind": "layers", "layers": [64, 0]}, "0 is out of range; allowed: a whole number at least 1"),
        ({"kind": "layers", "layers": []}, "layers"),
        ({"kind": "linear", "hidden": [3]}, "hidden"),
        ({"kind": "mlp"}, "hidden"),
        ({"kind": "mlp", "hidden": []}, "hidden"),
        ({"kind": "mlp", "hidden": [64, -1]}, "at least 1"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(spec: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        parse(spec)
