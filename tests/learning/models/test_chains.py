"""Formulas of chains of linear layers against modules that are made, and against PyTorch's own counter."""

from typing import Any, get_args

import pytest
import torch
from pydantic import TypeAdapter

from vflsim.learning.models.build import Draft, drafted
from vflsim.learning.models.client import AnyClientModel
from vflsim.learning.models.footprint import flops_of, footprint
from vflsim.learning.models.server import AnyServerModel
from vflsim.learning.models.shapes import Activation, TableShape

CLIENTS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear", "embedding": 5},
    "without bias": {"kind": "linear", "embedding": 5, "bias": False},
    "square": {"kind": "polynomial", "degree": 2, "embedding": 5},
    "wide cube": {"kind": "polynomial", "degree": 3, "embedding": 50, "bias": False},
    "degree 1": {"kind": "polynomial", "degree": 1, "embedding": 5},
    "two hidden": {"kind": "mlp", "hidden": [7, 3], "embedding": 5},
    **{
        f"{inner}, {outer}": {
            "kind": "mlp",
            "hidden": [9],
            "embedding": 8,
            "activation": inner,
            "output_activation": outer,
        }
        for inner in get_args(Activation)
        for outer in (None, "relu", "gelu")
    },
}
SERVERS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear"},
    "without bias": {"kind": "linear", "bias": False},
    "perceptron": {"kind": "mlp", "hidden": [8, 20], "activation": "tanh"},
}
OTHERS: list[tuple[Any, dict[str, Any], tuple[Any, ...]]] = [
    (AnyClientModel, {"kind": "cnn", "channels": [2], "embedding": 4}, ((1, 4, 4),)),
    (AnyClientModel, CLIENTS["linear"], (TableShape((0, 3)),)),
    (AnyServerModel, {"kind": "mlp", "hidden": [8], "batch_norm": True}, (6, 3)),
    (AnyServerModel, {"kind": "layers", "layers": [8]}, (6, 3)),
]


def draft(kind: Any, said: dict[str, Any], shapes: tuple[Any, ...]) -> Draft:
    return Draft(TypeAdapter(kind).validate_python(said), shapes)


def agree(made: Draft, inputs: tuple[int, ...]) -> None:
    chain, module = made.chain, drafted(made)
    assert chain is not None
    assert module is not None
    assert chain.parameters == sum(parameter.numel() for parameter in module.parameters())
    for rows in (2, 33):
        for dtype in (torch.float32, torch.float64):
            assert chain.footprint(rows, dtype.itemsize) == footprint(made, inputs, rows, dtype)
        for input_gradient in (False, True):
            counted = flops_of(module, (rows, *inputs), torch.float32, input_gradient)
            assert chain.flops(rows, input_gradient) == counted


@pytest.mark.sampled(16)
@pytest.mark.parametrize("said", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("shape", [(6,), (2, 3, 3)], ids=["table", "image"])
def test_a_clients_chain_is_that_of_its_module(said: dict[str, Any], shape: tuple[int, ...]) -> None:
    agree(draft(AnyClientModel, said, (shape,)), shape)


@pytest.mark.parametrize("said", SERVERS.values(), ids=SERVERS)
def test_a_servers_chain_is_that_of_its_module(said: dict[str, Any]) -> None:
    agree(draft(AnyServerModel, said, (6, 3)), (6,))


@pytest.mark.parametrize(("kind", "said", "shapes"), OTHERS, ids=["cnn", "categories", "batch norm", "layers"])
def test_what_is_no_chain_says_so(kind: Any, said: dict[str, Any], shapes: tuple[Any, ...]) -> None:
    assert draft(kind, said, shapes).chain is None
