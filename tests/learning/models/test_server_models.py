from typing import Any, get_args

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from vflsim.learning.models.server import SERVER_MODELS, AnyServerModel, LogisticServer, MlpServer, ServerModel
from vflsim.learning.tasks import BINARY

SPECS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear"},
    "mlp": {"kind": "mlp", "hidden": [7, 6], "batch_norm": True},
    "logistic": {"kind": "logistic"},
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
        ({"kind": "linear", "hidden": [3]}, "hidden"),
        ({"kind": "mlp"}, "hidden"),
        ({"kind": "mlp", "hidden": []}, "hidden"),
        ({"kind": "mlp", "hidden": [64, -1]}, "at least 1"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(spec: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        parse(spec)
